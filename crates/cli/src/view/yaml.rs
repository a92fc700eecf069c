//! JSON as YAML.

use serde_json::Value;

/// The document, with a line break at its end.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => block(value, 0, &mut text),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut text),
        flat => {
            text.push_str(&scalar(flat, 0));
            text.push('\n');
        }
    }
    text
}

/// A map or list that has something in it, each entry on lines of its own.
fn block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                text.push_str(&pad);
                text.push_str(&string(key, 0));
                text.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        text.push('\n');
                        block(value, indent + 2, text);
                    }
                    // Lists stand below their key without a step to the right, as kubectl writes them.
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        block(value, indent, text);
                    }
                    flat => {
                        text.push(' ');
                        text.push_str(&scalar(flat, indent + 2));
                        text.push('\n');
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut inner = String::new();
                match item {
                    Value::Object(fields) if !fields.is_empty() => block(item, indent + 2, &mut inner),
                    Value::Array(items) if !items.is_empty() => block(item, indent + 2, &mut inner),
                    flat => inner = format!("{}{}\n", " ".repeat(indent + 2), scalar(flat, indent + 2)),
                }
                // The first line of the entry has the dash in its margin.
                text.push_str(&pad);
                text.push_str("- ");
                text.push_str(&inner[indent + 2..]);
            }
        }
        _ => {}
    }
}

fn scalar(value: &Value, indent: usize) -> String {
    match value {
        Value::String(text) => string(text, indent),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Plain where it cannot be taken for something else, as lines where it has some, else quoted as in JSON.
fn string(text: &str, indent: usize) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let printable = text.chars().all(|c| c == '\n' || !c.is_control());
    let lines = text.trim_end_matches('\n');
    if indent > 0 && printable && lines.contains('\n') && !text.starts_with([' ', '\n']) && !text.ends_with("\n\n") {
        let pad = " ".repeat(indent);
        let keep = if text.ends_with('\n') { "" } else { "-" };
        let body: Vec<_> =
            lines.lines().map(|line| if line.is_empty() { String::new() } else { format!("{pad}{line}") }).collect();
        return format!("|{keep}\n{}", body.join("\n"));
    }
    Value::String(text.to_owned()).to_string()
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 13] = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"];
    let Some(first) = text.chars().next() else { return false };
    !WORDS.contains(&text.to_lowercase().as_str())
        && !first.is_ascii_digit()
        && !"-+.?:,[]{}#&*!|>'\"%@`<= ".contains(first)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_read_as_kubectl_writes_them() {
        let value = json!({
            "kind": "Pod",
            "metadata": { "name": "web", "labels": {}, "annotations": { "a/b": "true" } },
            "spec": {
                "containers": [{ "name": "main", "args": ["-c", "one\ntwo\n"], "ports": [{ "containerPort": 80 }] }],
                "empty": [],
            },
            "status": { "startTime": "2026-01-01T00:00:00Z", "ready": true, "note": "a: b" },
        });
        let expected = "\
kind: Pod
metadata:
  annotations:
    a/b: \"true\"
  labels: {}
  name: web
spec:
  containers:
  - args:
    - \"-c\"
    - |
      one
      two
    name: main
    ports:
    - containerPort: 80
  empty: []
status:
  note: \"a: b\"
  ready: true
  startTime: \"2026-01-01T00:00:00Z\"
";
        assert_eq!(document(&value), expected);
    }

    /// Read back by our own reader, whatever is in the strings.
    #[test]
    fn strings_stay_strings() {
        let odd = [
            "",
            " ",
            "a ",
            "no",
            "Null",
            "1",
            "1e3",
            "0x1f",
            "- a",
            "a: b",
            "a #b",
            "a:",
            "'",
            "\"",
            "\\",
            "a\nb",
            "a\n",
            "\na",
            " a\nb",
            "a\n\n",
            "a\n b\n",
            "\t",
            "\u{7}",
            "é",
            "*x",
            "&x",
            "!x",
            "|",
            ">",
            "%",
            "@",
            "`",
            "{",
            "[a]",
            "2026-01-01",
            "=",
            "<<",
        ];
        for text in odd {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "web", "annotations": { "keelet.test/odd": text } },
                "spec": { "containers": [{ "name": "main", "image": "app", "args": [text] }] },
            });
            let yaml = document(&pod);
            let read = keelet_pod::parse_one(&yaml).unwrap_or_else(|report| panic!("{yaml}\n{:?}", report.errors));
            let read = read.to_json().unwrap();
            assert_eq!(read["metadata"]["annotations"]["keelet.test/odd"], text, "{yaml}");
            assert_eq!(read["spec"]["containers"][0]["args"][0], text, "{yaml}");
        }
    }
}
