//! Log lines as JSON: one object per event.

use std::fmt;

use keelet_agent::{clock::OsClock, doors::Clock};
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Writes events as JSON objects: `timestamp`, `level`, `message`, and the fields of the event.
pub(super) struct Json {
    clock: Option<OsClock>,
}

/// Collects the fields of an event.
struct Fields(Map<String, Value>);

// === impl Json ===

impl Json {
    pub(super) fn new() -> Self {
        Self { clock: OsClock::new().ok() }
    }
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields(Map::new());
        if let Some(clock) = &self.clock {
            fields.0.insert("timestamp".to_owned(), clock.now().wall.to_string().into());
        }
        fields.0.insert("level".to_owned(), event.metadata().level().as_str().into());
        event.record(&mut fields);
        writeln!(writer, "{}", Value::Object(fields.0))
    }
}

// === impl Fields ===

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }
}
