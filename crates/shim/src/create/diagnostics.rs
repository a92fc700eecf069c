//! Errors that libcontainer logs. Its error values name the step that failed, and only its log has the cause.

use std::{fmt, io};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::report::Report;

/// Forwards logged errors of this process and of those it forks to the shim.
pub(super) fn forward(report: &Report) -> io::Result<()> {
    // A process that was forked from a shim has no other subscriber.
    let _ = tracing::subscriber::set_global_default(Diagnostics { report: report.try_clone()? });
    Ok(())
}

struct Diagnostics {
    report: Report,
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

// === impl Diagnostics ===

impl Subscriber for Diagnostics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.report.why(&format!("{}{}", line.message, line.fields));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

// === impl Line ===

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(", {} {value:?}", field.name()));
        }
    }
}
