//! What is wrong with a field of an object, in the form of the real server's causes.

use serde_json::{Value, json};

/// The kinds of faults that we meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldFault {
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TypeInvalid,
    TooMany,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    pub(crate) fault: FieldFault,
    pub(crate) field: String,
    /// The value as the message prints it.
    value: String,
    detail: String,
}

/// What the server says of a field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// All faults in one sentence: alone, or in brackets, each once.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for error in errors {
        let text = format!("{}: {}", error.field, error.body());
        if !parts.contains(&text) {
            parts.push(text);
        }
    }
    if let [only] = &parts[..] { only.clone() } else { format!("[{}]", parts.join(", ")) }
}

// === impl FieldFault ===

impl FieldFault {
    fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    /// Whether the rules of a custom resource are not checked any more.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(self, Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

// === impl FieldError ===

impl FieldError {
    fn new(fault: FieldFault, field: &str, value: String, detail: &str) -> Self {
        Self { fault, field: field.to_owned(), value, detail: detail.to_owned() }
    }

    pub(crate) fn required(field: &str, detail: &str) -> Self {
        Self::new(FieldFault::Required, field, String::new(), detail)
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(FieldFault::Duplicate, field, value.to_string(), "")
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::new(FieldFault::Invalid, field, value.to_string(), detail)
    }

    pub(crate) fn type_invalid(field: &str, value: &str, detail: &str) -> Self {
        Self::new(FieldFault::TypeInvalid, field, format!("{value:?}"), detail)
    }

    pub(crate) fn not_supported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        Self::new(FieldFault::NotSupported, field, value.to_string(), &detail)
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(FieldFault::Forbidden, field, String::new(), detail)
    }

    pub(crate) fn too_long(field: &str, most: usize) -> Self {
        let detail = format!("may not be more than {most} bytes");
        Self::new(FieldFault::TooLong, field, String::new(), &detail)
    }

    pub(crate) fn too_many(field: &str, items: usize, most: i64) -> Self {
        let detail = format!("must have at most {most} items");
        Self::new(FieldFault::TooMany, field, items.to_string(), &detail)
    }

    /// With a sentence about it.
    pub(crate) fn with_detail(mut self, detail: &str) -> Self {
        self.detail = detail.to_owned();
        self
    }

    /// The message without the field.
    pub(crate) fn body(&self) -> String {
        let mut text = self.fault.words().to_owned();
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }

    /// The cause in a `Status`.
    pub(crate) fn cause(&self) -> Value {
        json!({ "reason": self.fault.reason(), "message": self.body(), "field": self.field })
    }
}
