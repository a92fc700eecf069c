//! `restartPolicy` and `restartPolicyRules` of a container (API-12 to API-17).

use k8s_openapi::api::core::v1;

use crate::{
    Action, ExitCodes, Features, Operator, RestartPolicy, Role, Rule,
    path::FieldPath,
    problem::{forbidden, required, suspicious, too_many},
    review::Review,
};

use super::choice;

/// Rules per container.
const MAX_RULES: usize = 20;
/// Exit codes per rule.
const MAX_EXIT_CODES: usize = 255;

const POLICIES: [(&str, RestartPolicy); 3] =
    [("Always", RestartPolicy::Always), ("OnFailure", RestartPolicy::OnFailure), ("Never", RestartPolicy::Never)];
const ACTIONS: [(&str, Action); 2] =
    [("Restart", Action::Restart), ("RestartAllContainers", Action::RestartAllContainers)];
const OPERATORS: [(&str, Operator); 2] = [("In", Operator::In), ("NotIn", Operator::NotIn)];

/// API-12: the container's own policy, if it has one.
pub(super) fn policy(raw: &v1::Container, path: &FieldPath, review: &mut Review<'_>) -> Option<RestartPolicy> {
    choice(review, &path.field("restartPolicy"), raw.restart_policy.as_deref()?, &POLICIES)
}

/// The rules in force; none where rules are not allowed.
pub(super) fn build(
    raw: &v1::Container,
    role: Role,
    policy: Option<RestartPolicy>,
    features: &Features,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Vec<Rule> {
    let raw_rules = raw.restart_policy_rules.as_deref().unwrap_or_default();
    let here = path.field("restartPolicyRules");
    if raw_rules.is_empty() {
        return Vec::new();
    }
    if role == Role::Sidecar && !features.restart_all.is_on() {
        let message = "rules are not allowed for init containers with restartPolicy=Always";
        review.object(&here, forbidden(message));
        return Vec::new();
    }
    if raw_rules.len() > MAX_RULES {
        review.object(&here, too_many(raw_rules.len(), MAX_RULES));
    }
    if raw.restart_policy.is_none() {
        let message = "must specify restartPolicy when restart rules are used";
        review.object(&path.field("restartPolicy"), required(message));
    }
    let rules: Vec<_> =
        raw_rules.iter().enumerate().filter_map(|(index, rule)| build_rule(rule, &here.index(index), review)).collect();
    if role == Role::Init {
        warn_of_endless_restarts(&rules, &here, review);
    }
    if policy.is_none() { Vec::new() } else { rules }
}

fn build_rule(raw: &v1::ContainerRestartRule, path: &FieldPath, review: &mut Review<'_>) -> Option<Rule> {
    let action = choice(review, &path.field("action"), &raw.action, &ACTIONS);
    let path = path.field("exitCodes");
    let Some(raw) = &raw.exit_codes else {
        review.object(&path, required("must be specified"));
        return None;
    };
    let operator = choice(review, &path.field("operator"), &raw.operator, &OPERATORS);
    let values = raw.values.clone().unwrap_or_default();
    if values.len() > MAX_EXIT_CODES {
        review.object(&path.field("values"), too_many(values.len(), MAX_EXIT_CODES));
    }
    if values.is_empty() && operator == Some(Operator::In) {
        review.warn(&path.field("values"), suspicious("In without values matches no exit code"));
    }
    Some(Rule { action: action?, exit_codes: ExitCodes { operator: operator?, values } })
}

/// CON-18d: an init container that restarts the pod when it succeeds does so again and again.
fn warn_of_endless_restarts(rules: &[Rule], path: &FieldPath, review: &mut Review<'_>) {
    let first = rules.iter().find(|rule| rule.exit_codes.matches(0));
    if first.is_some_and(|rule| rule.action == Action::RestartAllContainers) {
        let message = "restarts all containers whenever this init container succeeds (exit code 0): the pod never gets \
                       past it, slowed down by the backoff only";
        review.warn(path, suspicious(message));
    }
}
