//! `$(NAME)` in values, commands, arguments and paths.

/// Replaces every `$(NAME)` by what `value_of` says of the name. `$$` stands for one `$` and keeps what follows from
/// being a reference. What is no complete reference stays as it is. `None` if the result is longer than `most` bytes.
pub(super) fn expand(text: &str, most: usize, mut value_of: impl FnMut(&str) -> String) -> Option<String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        if expanded.len() > most {
            return None;
        }
        expanded.push_str(before);
        let reference = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = if let Some(escaped) = after.strip_prefix('$') {
            expanded.push('$');
            escaped
        } else if let Some((name, behind)) = reference {
            expanded.push_str(&value_of(name));
            behind
        } else {
            expanded.push('$');
            after
        };
    }
    expanded.push_str(rest);
    (expanded.len() <= most).then_some(expanded)
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn value_of(name: &str) -> String {
        match name {
            "VAR_A" => "A".to_owned(),
            "VAR_B" => "B".to_owned(),
            "VAR_C" => "C".to_owned(),
            "VAR_REF" => "$(VAR_A)".to_owned(),
            "VAR_EMPTY" => String::new(),
            undefined => format!("$({undefined})"),
        }
    }

    #[test]
    fn references_are_replaced_once_and_escapes_are_undone() {
        let cases = [
            ("$(VAR_A)", "A"),
            ("$(VAR_A)-$(VAR_A)", "A-A"),
            ("$(VAR_A)-1", "A-1"),
            ("___$(VAR_B)___", "___B___"),
            ("___$(VAR_C)", "___C"),
            ("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            (r"foo\$(VAR_C)bar", r"foo\Cbar"),
            (r"foo\\$(VAR_C)bar", r"foo\\Cbar"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$$$$$$$(GOOD_ODDS)", "$$$$(GOOD_ODDS)"),
            ("$(VAR_B)_______$(A", "B_______$(A"),
            ("$(VAR_C)_______$(", "C_______$("),
            ("$(VAR_A)foobarzab$", "Afoobarzab$"),
        ];
        for (text, expanded) in cases {
            assert_eq!(expand(text, 100, value_of).as_deref(), Some(expanded), "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_to_a_known_name_stays() {
        for text in [
            "",
            "\n",
            "$",
            "f00__(VAR_A)__",
            "$?_boo_$!",
            "$VAR_A",
            "$VAR_A)",
            "${VAR_A}",
            "$(VAR_DNE)",
            "$(VAR_A$(VAR_B))",
            "$(VAR_A$(VAR_B)",
            "foo$(VAR_Awhoops!",
            r"foo-\$(VAR_A",
            "--$($($($($--",
            "$($($($($--foo$(",
            "foo0--$($($($(",
            "$(foo$$var)",
            "$£FOO",
            "prefix-$€-suffix",
            "$中文",
        ] {
            assert_eq!(expand(text, 100, value_of).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_grows_too_long_is_given_up() {
        let value_of = |_: &str| "x".repeat(40);
        assert_eq!(expand("$(A)$(A)", 80, value_of).map(|text| text.len()), Some(80));
        assert_eq!(expand("$(A)$(A)", 79, value_of), None);
        let mut asked = 0;
        let text = "$(A)".repeat(1_000_000);
        let counted = |_: &str| {
            asked += 1;
            "x".repeat(40)
        };
        assert_eq!(expand(&text, 4000, counted), None);
        assert!(asked < 200, "{asked} values were put together");
    }
}
