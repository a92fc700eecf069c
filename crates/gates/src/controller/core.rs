//! The core: it owns the engine, hears of everything, and has requests under way.

use std::{pin::Pin, sync::Arc};

use futures::{
    StreamExt,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use jiff::SignedDuration;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    Controller, LAST_ANSWERS, RuleObjects, TICK, Time, Vitals,
    events::{self, Event, Outbox},
    objects::{self, NODES, Nodes},
    rules::{Found, Known, Missing},
};
use crate::{
    api::{Api, ApiError, News, Objects as _, SHORT, escaped, follow, has_group},
    election::Role,
    engine::{Call, Engine, Mode, Now, Outcome, Request, RuleCall, RulePart, Said},
    metrics::Metrics,
    node::{Detail, Interest, Node, Reader},
    rule::{Rule, Rules as RuleList},
    words::Tone,
};

/// News that wait between a follower and the core. More would only make memory hold what the connection holds anyway.
const NEWS: usize = 16;

/// Events written at once.
const EVENTS_IN_FLIGHT: usize = 4;

/// Events are written when no node has to be patched, and also when they have waited for so long.
const EVENTS_WAIT: SignedDuration = SignedDuration::from_secs(5);

pub(super) struct Core<'a> {
    api: &'a Api,
    clock: &'a Time,
    metrics: &'a Arc<Metrics>,
    vitals: &'a watch::Sender<Vitals>,
    granted: &'a Notify,
    role: watch::Receiver<Role>,
    engine: Engine,
    nodes: Nodes,
    node_news: Followed<Node>,
    /// None if rules are not looked at.
    rule_news: Option<Followed<Rule>>,
    rules: Known,
    outbox: Outbox,
    events: usize,
    under_way: FuturesUnordered<BoxFuture<'a, Done>>,
}

/// Objects that are followed: the future that follows them, and what it says.
struct Followed<T> {
    follow: BoxFuture<'static, ()>,
    news: mpsc::Receiver<News<T>>,
}

/// A request that has ended.
enum Done {
    Node(Call, Answer),
    Rule(RuleCall, Result<(), ApiError>),
    Rules(Missing, Found),
    Event(Event, Result<(), ApiError>),
}

/// The answer to a request about a node, not yet read.
enum Answer {
    Body(bytes::Bytes),
    Failed(ApiError),
    /// It was not sent: this one does not lead any more.
    NotSent,
}

/// Whether this one leads. Every write asks it when it is sent: the process may have been frozen since the decision.
struct Leading<'a> {
    clock: &'a Time,
    role: watch::Receiver<Role>,
}

/// What woke the core.
enum Woken {
    Stop,
    Role,
    Done(Done),
    Node(News<Node>),
    Rule(News<Rule>),
    /// What the API server refused may be allowed now.
    Granted,
    Time,
}

// === impl Core ===

impl<'a> Core<'a> {
    pub(super) fn new(controller: &'a Controller, role: watch::Receiver<Role>) -> Self {
        let Controller { api, clock, options, metrics, vitals, granted } = controller;
        let interest = Interest { prefixes: options.settings.prefixes.clone(), ..Interest::default() };
        let nodes = Nodes::new(Reader::new(interest));
        let node_news = Followed::begin(|news| follow(api.clone(), nodes.clone(), news, Arc::clone(metrics)));
        let rule_news = (options.rules == RuleObjects::Auto)
            .then(|| Followed::begin(|news| follow(api.clone(), objects::Rules::new(), news, Arc::clone(metrics))));
        let mut engine = Engine::new(options.settings.clone(), options.mode, Arc::clone(metrics));
        if rule_news.is_none() {
            engine.set_rules(RuleList::off(), clock.now());
        }
        Self {
            api,
            clock,
            metrics,
            vitals,
            granted,
            role,
            engine,
            nodes,
            node_news,
            rule_news,
            rules: Known::default(),
            outbox: Outbox::default(),
            events: 0,
            under_way: FuturesUnordered::new(),
        }
    }

    /// Runs until `stop`. Whether all requests about nodes have ended: one that is under way may still change a node, and until then no
    /// other leader may count how many are held.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()> + Send) -> bool {
        let mut stop = std::pin::pin!(stop);
        loop {
            let wake_at = self.act();
            match self.woken(stop.as_mut(), wake_at).await {
                Woken::Stop => break,
                Woken::Role | Woken::Time => {}
                Woken::Granted => self.engine.try_refused(self.clock.now()),
                Woken::Done(done) => self.done(done),
                Woken::Node(news) => self.node_news(news),
                Woken::Rule(news) => self.rule_news(news),
            }
        }
        // Requests under way may still be answered, which tells what they did.
        let end = Instant::now() + LAST_ANSWERS;
        while let Ok(Some(done)) = timeout_at(end, self.under_way.next()).await {
            self.done(done);
        }
        let now = self.clock.now();
        self.engine.lead(false, now);
        self.beat();
        self.engine.in_flight() == 0
    }

    /// Does what can be done now; until when to wait if nothing happens.
    fn act(&mut self) -> Instant {
        let now = self.clock.now();
        let until = match *self.role.borrow_and_update() {
            Role::Leader { until } if now.at < until => Some(until),
            _ => None,
        };
        self.engine.lead(until.is_some(), now);
        if self.engine.wants_count() {
            self.engine.count_anew();
            self.follow_nodes();
        }
        while let Some(call) = self.engine.next(now) {
            self.under_way.push(Box::pin(ask(self.api, call, self.leading())));
        }
        for call in self.engine.rule_calls(now) {
            self.under_way.push(Box::pin(change_rule(self.api, call, self.leading())));
        }
        for missing in self.rules.unconfirmed(now.at) {
            self.under_way.push(Box::pin(look_for_rule(self.api, missing)));
        }
        self.speak(now);
        self.write_events(now);
        self.beat();
        let wake_at = self.engine.wake_at().into_iter().chain(until).min().and_then(|at| self.clock.instant(at));
        wake_at.into_iter().chain([Instant::now() + TICK]).min().unwrap_or_else(Instant::now)
    }

    async fn woken(&mut self, stop: Pin<&mut (impl Future<Output = ()> + Send)>, wake_at: Instant) -> Woken {
        let Self { role, under_way, node_news, rule_news, granted, .. } = self;
        let done = async {
            match under_way.next().await {
                Some(done) => done,
                None => pending().await,
            }
        };
        let rule = async {
            match rule_news {
                Some(rules) => rules.next().await,
                None => pending().await,
            }
        };
        // In this order, and not by chance: a run is the same each time. What ends work comes before what brings more of it.
        tokio::select! {
            biased;
            () = stop => Woken::Stop,
            Ok(()) = role.changed() => Woken::Role,
            done = done => Woken::Done(done),
            () = granted.notified() => Woken::Granted,
            () = sleep_until(wake_at) => Woken::Time,
            news = rule => Woken::Rule(news),
            news = node_news.next() => Woken::Node(news),
        }
    }

    fn node_news(&mut self, news: News<Node>) {
        let now = self.clock.now();
        match news {
            News::ListBegins => self.engine.list_begins(false),
            News::Listed(nodes) => nodes.into_iter().for_each(|node| self.engine.listed(node, now)),
            News::ListEnds => {
                self.engine.list_ends(now);
                debug!(nodes = self.metrics.nodes.get(), "all nodes are known");
            }
            News::Changed(node) => self.engine.observe(node, now),
            News::Deleted(node) => self.engine.deleted(&node.name, &node.uid),
            News::NoSuchKind | News::NotServed(_) => warn!("the API server knows no nodes"),
        }
    }

    fn rule_news(&mut self, news: News<Rule>) {
        if let News::NotServed(why) = &news {
            warn!(why, "cannot list rules: what was known of them stays so");
        }
        if self.rules.hear(news) {
            self.use_rules();
        }
    }

    fn use_rules(&mut self) {
        let now = self.clock.now();
        let rules = self.rules.rules();
        if self.engine.rules() != rules {
            for rule in rules.list.values() {
                if let Err(fault) = &rule.spec {
                    warn!(rule = %rule.name, %fault, "rule is not enforced");
                }
            }
            for (rule, other) in rules.conflicts() {
                warn!(%rule, %other, "rules share a taint and may select the same node: it stays until both are met");
            }
        }
        let labels = rules.labels();
        let is_news = !labels.is_subset(&self.nodes.reader().interest().labels);
        if is_news {
            // Labels that were not kept so far decide which nodes a rule selects: all nodes have to be read again.
            let prefixes = self.nodes.reader().interest().prefixes.clone();
            self.nodes = Nodes::new(Reader::new(Interest { prefixes, labels, detail: Detail::Decisions }));
            self.follow_nodes();
            self.engine.list_begins(true);
        }
        self.engine.set_rules(self.rules.rules().clone(), now);
    }

    /// Lists and follows all nodes from now on, whatever is under way.
    fn follow_nodes(&mut self) {
        let (api, nodes, metrics) = (self.api.clone(), self.nodes.clone(), Arc::clone(self.metrics));
        self.node_news = Followed::begin(|news| follow(api, nodes, news, metrics));
    }

    fn done(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Node(call, answer) => {
                let outcome = self.outcome(&call, answer);
                self.engine.finished(call.id, &call.node, outcome, now);
            }
            Done::Rule(call, result) => {
                if let Err(error) = &result {
                    let part = if call.part == RulePart::Status { "status" } else { "finalizers" };
                    warn!(rule = %call.rule, part, %error, "cannot write to the rule");
                }
                self.engine.rule_finished(&call, result.is_ok(), now);
            }
            Done::Rules(missing, found) => {
                let gone = self.rules.looked(&missing, found, now.at);
                debug!(rule = %missing.name, gone, "looked for a rule that is not listed any more");
                if gone {
                    self.use_rules();
                }
            }
            Done::Event(event, result) => {
                self.events -= 1;
                match result {
                    Ok(()) => {
                        self.metrics.event("written");
                        self.outbox.written(event);
                    }
                    Err(error) => {
                        debug!(event = event.name, %error, "cannot write the event");
                        self.metrics.event("failed");
                    }
                }
            }
        }
    }

    fn outcome(&self, call: &Call, answer: Answer) -> Outcome {
        let outcome = match answer {
            Answer::NotSent => Outcome::NotSent,
            Answer::Body(json) => match self.nodes.reader().node(&json) {
                Ok(node) => Outcome::Node(Box::new(node)),
                Err(error) => Outcome::Unavailable(error.to_string()),
            },
            Answer::Failed(ApiError::NoAnswer(error)) => Outcome::Unavailable(error),
            Answer::Failed(ApiError::Refused { code, reason, message, retry_after }) => match code {
                // The page of a proxy says nothing about the node.
                404 if reason != "NotFound" => Outcome::Unavailable(message),
                404 => Outcome::NotFound,
                409 => Outcome::Conflict,
                429 => Outcome::Throttled(retry_after),
                408 | 500.. => Outcome::Unavailable(message),
                _ => Outcome::Refused(message),
            },
        };
        match &outcome {
            Outcome::Refused(error) => warn!(node = %call.node, error, "the API server refuses to change the node"),
            Outcome::Unavailable(error) => debug!(node = %call.node, error, "no answer about the node"),
            _ => {}
        }
        outcome
    }

    /// Logs what there is to say, and keeps it for events.
    fn speak(&mut self, now: Now) {
        for said in self.engine.said() {
            let Said { node, report, mode, .. } = &said;
            let (reason, detail) = (report.reason, &*report.message);
            match (mode, report.tone) {
                (Mode::DryRun, _) => info!(%node, reason, detail, "dry run: nothing is changed"),
                (Mode::Act, Tone::Normal) => info!(%node, reason, detail, "gate"),
                (Mode::Act, Tone::Warning) => warn!(%node, reason, detail, "gate"),
            }
            if *mode == Mode::Act && !self.outbox.push(said, now.wall) {
                self.metrics.event("dropped");
            }
        }
    }

    fn write_events(&mut self, now: Now) {
        if !self.leading().is_so() {
            // The next leader says what is still so.
            return self.outbox.clear();
        }
        let waited = |outbox: &Outbox| outbox.oldest().is_some_and(|at| now.wall.duration_since(at) > EVENTS_WAIT);
        while !self.outbox.is_empty()
            && self.events < EVENTS_IN_FLIGHT
            && (self.engine.in_flight() == 0 || waited(&self.outbox))
        {
            let Some(event) = self.outbox.pop() else { break };
            self.events += 1;
            self.under_way.push(Box::pin(write_event(self.api, event, self.leading())));
        }
    }

    fn leading(&self) -> Leading<'a> {
        Leading { clock: self.clock, role: self.role.clone() }
    }

    fn beat(&self) {
        let leads = self.leading().is_so();
        let vitals = Vitals { synced: self.engine.is_synced(), leads, beat: Instant::now() };
        self.vitals.send_replace(vitals);
    }
}

// === impl Followed ===

impl<T> Followed<T> {
    fn begin<F: Future<Output = ()> + Send + 'static>(follow: impl FnOnce(mpsc::Sender<News<T>>) -> F) -> Self {
        let (sender, news) = mpsc::channel(NEWS);
        Self { follow: Box::pin(follow(sender)), news }
    }

    /// The next news. Follows until there is one.
    async fn next(&mut self) -> News<T> {
        loop {
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => return news,
                // It ends only when nothing reads its news.
                () = &mut self.follow => pending().await,
            }
        }
    }
}

async fn ask(api: &Api, call: Call, leading: Leading<'_>) -> Done {
    if !leading.is_so() {
        return Done::Node(call, Answer::NotSent);
    }
    let path = format!("{NODES}/{}", escaped(&call.node));
    let answer = match &call.request {
        Request::Get => api.get(&path, SHORT).await,
        Request::Patch(patch) => api.patch(&path, patch.clone(), SHORT).await,
    };
    Done::Node(call, answer.map_or_else(Answer::Failed, Answer::Body))
}

async fn change_rule(api: &Api, call: RuleCall, leading: Leading<'_>) -> Done {
    if !leading.is_so() {
        return Done::Rule(call, Err(not_sent()));
    }
    let status = if call.part == RulePart::Status { "/status" } else { "" };
    let path = format!("{}/{}{status}", objects::rules_path(), escaped(&call.rule));
    let result = api.patch(&path, call.patch.to_string().into_bytes(), SHORT).await;
    // A rule that is gone needs nothing any more.
    let result = result.map(drop).or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) });
    Done::Rule(call, result)
}

/// Asks for a rule that is not seen any more, by its name. That is a list, which has a version and needs no other permission.
async fn look_for_rule(api: &Api, missing: Missing) -> Done {
    let name = escaped(&format!("metadata.name={}", missing.name));
    let path = format!("{}?fieldSelector={name}", objects::rules_path());
    let found = match api.get(&path, SHORT).await {
        Ok(json) => objects::Rules::new().page(&json).map_or(Found::Unknown, Found::Listed),
        Err(error) if error.is_not_found() => match has_group(api, &path).await {
            Ok(false) => Found::NoSuchKind,
            Ok(true) | Err(_) => Found::Unknown,
        },
        Err(_) => Found::Unknown,
    };
    Done::Rules(missing, found)
}

async fn write_event(api: &Api, event: Event, leading: Leading<'_>) -> Done {
    let result = put_event(api, &event, &leading).await.map(drop);
    Done::Event(event, result)
}

/// An event that was written before may have expired, and one that was not may be there, from another leader.
async fn put_event(api: &Api, event: &Event, leading: &Leading<'_>) -> Result<bytes::Bytes, ApiError> {
    let path = format!("{}/{}", events::EVENTS, escaped(&event.name));
    let (object, patch) = (event.object(), event.patch().to_string().into_bytes());
    let create = async || if leading.is_so() { api.create(events::EVENTS, &object).await } else { Err(not_sent()) };
    let patch = async || if leading.is_so() { api.patch(&path, patch, SHORT).await } else { Err(not_sent()) };
    if event.count == 0 {
        match create().await {
            Err(error) if error.is_conflict() => patch().await,
            result => result,
        }
    } else {
        match patch().await {
            Err(error) if error.is_not_found() => create().await,
            result => result,
        }
    }
}

fn not_sent() -> ApiError {
    ApiError::NoAnswer("not sent: this replica does not lead any more".to_owned())
}

// === impl Leading ===

impl Leading<'_> {
    fn is_so(&self) -> bool {
        matches!(*self.role.borrow(), Role::Leader { until } if self.clock.now().at < until)
    }
}
