//! What the controller may do, compared with what it has to be allowed to do, for as long as it runs.
//!
//! A controller without one of its permissions does what needs it not. Without the permission to list nodes or rules it decides nothing, because a
//! rule that it cannot see may hold a node. It says which one is missing and which rule grants it, and looks again,
//! so that it needs no restart once the rule is there.

use std::time::Duration;

use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::api::{self, Api, Permission};

/// What the controller is allowed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The API server has not said it yet.
    Unknown,
    /// All that it needs.
    Complete,
    /// All but this.
    Lacking(Vec<Permission>),
}

/// How often to look again while something is missing: short beside the time in which a person writes the rule.
const LACKING: Duration = Duration::from_secs(5);

/// How often to look again otherwise, unless a request is forbidden.
const COMPLETE: Duration = Duration::from_secs(600);

/// The shortest time between two looks at everything.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks what is allowed, for ever.
pub(super) async fn watch(api: &Api, permissions: &[Permission], access: &watch::Sender<Access>, granted: &Notify) {
    loop {
        // What was missing comes first, and all of it only if that is there now.
        let before = access.borrow().clone();
        let asked = if let Access::Lacking(lacking) = &before { &lacking[..] } else { permissions };
        let lacking = match api::check(api, asked).await {
            Ok(lacking) if lacking.is_empty() && matches!(before, Access::Lacking(_)) => {
                api::check(api, permissions).await
            }
            answer => answer,
        };
        match lacking {
            Ok(lacking) if lacking.is_empty() => {
                if access.send_replace(Access::Complete) != Access::Complete {
                    info!("all permissions are granted");
                    granted.notify_one();
                }
                sleep(PAUSE).await;
                // Otherwise a request that is forbidden is the reason to look again.
                let _ = timeout(COMPLETE, api.forbidden()).await;
                continue;
            }
            Ok(lacking) => {
                report(&lacking, &before);
                access.send_replace(Access::Lacking(lacking));
            }
            // The list of nodes fails too, and says so.
            Err(error) => debug!(%error, "cannot ask for permissions"),
        }
        sleep(LACKING).await;
    }
}

/// Logs what is missing and was not before.
fn report(lacking: &[Permission], before: &Access) {
    let known = if let Access::Lacking(known) = before { &known[..] } else { &[] };
    for permission in lacking.iter().filter(|permission| !known.contains(permission)) {
        let (role, rule) = (permission.role(), permission.rule());
        warn!(%permission, role, rule, "permission missing: add the rule to the role");
    }
}
