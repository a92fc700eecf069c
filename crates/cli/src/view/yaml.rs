//! JSON as YAML, in the form in which kubectl prints it.

use serde_json::Value;

/// The document, with a line break at its end.
pub(crate) fn document(value: &Value) -> anyhow::Result<String> {
    // kubectl breaks no lines that are long.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    Ok(serde_saphyr::to_string_with_options(value, options)?)
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
    - -c
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
        assert_eq!(document(&value).unwrap(), expected);
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
            let yaml = document(&pod).unwrap();
            let read = keelet_pod::parse_one(&yaml).unwrap_or_else(|report| panic!("{yaml}\n{:?}", report.errors));
            let read = read.to_json().unwrap();
            assert_eq!(read["metadata"]["annotations"]["keelet.test/odd"], text, "{yaml}");
            assert_eq!(read["spec"]["containers"][0]["args"][0], text, "{yaml}");
        }
    }
}
