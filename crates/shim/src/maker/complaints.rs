//! What libcontainer complains of in its log: there is the reason for a failure, near to where it happened.

use std::{fmt, io, os::fd::OwnedFd};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::WHY;
use crate::wire;

/// Tells complaints to the shim, from this process and those it forks.
pub(super) fn pass_on(report: &OwnedFd) -> io::Result<()> {
    // A process that forked off a shim has no other log.
    let _ = tracing::subscriber::set_global_default(Complaints { report: report.try_clone()? });
    Ok(())
}

struct Complaints {
    report: OwnedFd,
}

#[derive(Default)]
struct Words {
    message: String,
    rest: String,
}

// === impl Complaints ===

impl Subscriber for Complaints {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let line = format!("{}{}", words.message, words.rest).replace('\n', " ");
        // A shim that is gone needs no reasons.
        let _ = wire::send(&self.report, format!("{WHY}{line}\n").as_bytes(), &[]);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

// === impl Words ===

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.rest.push_str(&format!(", {} {value:?}", field.name()));
        }
    }
}
