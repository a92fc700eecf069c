//! Text in, one tree per document out, within limits.

use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, Tag};

use crate::problem::MAX_PROBLEMS;

use super::{MapEntry, Position, Resolved, TreeNode, Value, resolve};

/// How deep values may nest. A pod nests about 14 levels.
pub(crate) const MAX_DEPTH: usize = 64;

/// How many values a file may have, aliases expanded. 3 MiB of ordinary YAML have about 100,000; this many cost
/// about 50 MB.
pub(crate) const MAX_NODES: usize = 500_000;

/// How many bytes of text a file may have, aliases expanded: a few times the limit on its size.
pub(crate) const MAX_TEXT: usize = 8 << 20;

/// One document of a file.
#[derive(Debug)]
pub(crate) struct Document {
    /// Counted from 1.
    pub(crate) number: usize,
    /// The tree, or why the document cannot be read.
    pub(crate) root: Result<TreeNode, Unreadable>,
}

/// Why a document cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) struct Unreadable {
    pub(crate) at: Position,
    pub(crate) message: String,
}

/// Builds the tree of one document from events. Budgets span the file.
#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Anchored>,
    root: Option<TreeNode>,
    nodes: usize,
    text: usize,
}

/// An open list or map.
struct Frame {
    node: TreeNode,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<(Box<str>, Position)>,
}

/// A finished node that aliases may refer to, with what a copy of it costs.
struct Anchored {
    node: TreeNode,
    cost: Cost,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    text: usize,
    height: usize,
}

/// Splits a text into documents, empty ones left out. A broken document does not hide the ones behind it; an
/// exhausted budget does.
pub(crate) fn parse(text: &str) -> Vec<Document> {
    let options = granit_parser::options! { flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder::default();
    let mut documents = Vec::new();
    let mut number = 0;
    let mut failures = 0;
    loop {
        let failure = match parser.next() {
            None => break,
            Some(Ok((Event::StreamStart | Event::StreamEnd, _))) => continue,
            Some(Ok((Event::DocumentStart(..), _))) => {
                number += 1;
                builder.start_document();
                continue;
            }
            Some(Ok((Event::DocumentEnd, _))) => {
                if let Some(root) = builder.root.take()
                    && root.value != Value::Null
                {
                    documents.push(Document { number, root: Ok(root) });
                }
                continue;
            }
            Some(Ok((event, span))) => match builder.take(event, position(&span.start)) {
                Ok(()) => continue,
                Err(failure) => failure,
            },
            Some(Err(error)) => match error.kind() {
                ErrorKind::RecursionLimitExceeded => too_deep(position(error.marker())),
                _ => unreadable(position(error.marker()), error.info()),
            },
        };
        documents.push(Document { number: number.max(1), root: Err(failure) });
        builder.start_document();
        failures += 1;
        let hopeless = builder.exhausted() || failures == MAX_PROBLEMS;
        if hopeless || !parser.proceed_next_document().unwrap_or(false) {
            break;
        }
    }
    documents
}

// === impl Builder ===

impl Builder {
    fn start_document(&mut self) {
        self.stack.clear();
        self.anchors.clear();
        self.root = None;
    }

    fn exhausted(&self) -> bool {
        self.nodes > MAX_NODES || self.text > MAX_TEXT
    }

    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), Unreadable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.expects_key() {
                    self.charge(Cost { nodes: 0, text: text.len(), height: 0 }, at)?;
                    self.remember(anchor, &TreeNode { at, value: Value::Text(text.as_ref().into()) })?;
                    self.set_key(text.as_ref().into(), at);
                    return Ok(());
                }
                let value = scalar(&text, style, tag.as_deref(), at)?;
                let node = TreeNode { at, value };
                self.charge(Cost { nodes: 1, text: text.len(), height: 0 }, at)?;
                self.remember(anchor, &node)?;
                self.attach(node);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Value::List(Vec::new()), "seq", anchor, tag.as_deref(), at)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(Value::Map(Vec::new()), "map", anchor, tag.as_deref(), at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(id) => self.expand(id, at)?,
            _ => {}
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        self.stack.last().is_some_and(|frame| matches!(frame.node.value, Value::Map(_)) && frame.key.is_none())
    }

    fn set_key(&mut self, key: Box<str>, at: Position) {
        if let Some(frame) = self.stack.last_mut() {
            frame.key = Some((key, at));
        }
    }

    fn open(
        &mut self,
        value: Value,
        kind: &str,
        anchor: usize,
        tag: Option<&Tag>,
        at: Position,
    ) -> Result<(), Unreadable> {
        if self.expects_key() {
            return Err(unreadable(at, "a list or map cannot be a key; keys are strings"));
        }
        if let Some(tag) = tag
            && !tag.is_yaml_core_schema_tag(kind)
        {
            return Err(unsupported_tag(tag, at));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.charge(Cost { nodes: 1, text: 0, height: 0 }, at)?;
        self.stack.push(Frame { node: TreeNode { at, value }, anchor, key: None });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Unreadable> {
        let Some(mut frame) = self.stack.pop() else { return Ok(()) };
        merge(&mut frame.node)?;
        self.remember(frame.anchor, &frame.node)?;
        self.attach(frame.node);
        Ok(())
    }

    fn expand(&mut self, id: usize, at: Position) -> Result<(), Unreadable> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(unreadable(at, "an alias inside the value that it refers to"));
        };
        let cost = anchored.cost;
        if self.stack.len() + cost.height > MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.charge(cost, at)?;
        let mut node = self.anchors[&id].node.clone();
        if self.expects_key() {
            let key = match node.value {
                Value::Plain(text) | Value::Text(text) => text,
                _ => return Err(unreadable(at, "a list or map cannot be a key; keys are strings")),
            };
            self.set_key(key, at);
            return Ok(());
        }
        // The position of the use, not of the definition: that is where the reader has to look.
        node.at = at;
        self.attach(node);
        Ok(())
    }

    /// Counts before it copies, so that a small file cannot become a large tree.
    fn charge(&mut self, cost: Cost, at: Position) -> Result<(), Unreadable> {
        self.nodes += cost.nodes;
        self.text += cost.text;
        if self.nodes > MAX_NODES {
            return Err(unreadable(at, format!("more than {MAX_NODES} values once aliases are expanded")));
        }
        if self.text > MAX_TEXT {
            return Err(unreadable(at, format!("more than {MAX_TEXT} bytes of text once aliases are expanded")));
        }
        Ok(())
    }

    /// Keeps a copy for later aliases. The copy counts too, because anchors within anchors would multiply.
    fn remember(&mut self, anchor: usize, node: &TreeNode) -> Result<(), Unreadable> {
        if anchor != 0 {
            let cost = cost(node);
            self.charge(cost, node.at)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), cost });
        }
        Ok(())
    }

    fn attach(&mut self, node: TreeNode) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => {
                if let Some((key, at)) = frame.key.take() {
                    entries.push(MapEntry { key, at, node });
                }
            }
            _ => {}
        }
    }
}

/// The value of a scalar, as its notation and tag have it.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Value, Unreadable> {
    let plain = match tag.map(|tag| (tag, tag.core_suffix())) {
        None => style == ScalarStyle::Plain,
        Some((_, Some("str"))) => false,
        Some((_, Some("int" | "float" | "bool" | "null"))) => true,
        // `! x`, the non-specific tag: a string.
        Some((tag, None)) if tag.original() == "!" => false,
        Some((tag, _)) => return Err(unsupported_tag(tag, at)),
    };
    Ok(match plain {
        false => Value::Text(text.into()),
        true if resolve(text) == Resolved::Null => Value::Null,
        true => Value::Plain(text.into()),
    })
}

/// `<<: *defaults`: the merged map's entries come first and lose against the map's own.
fn merge(node: &mut TreeNode) -> Result<(), Unreadable> {
    let Value::Map(entries) = &mut node.value else { return Ok(()) };
    if !entries.iter().any(|entry| &*entry.key == "<<") {
        return Ok(());
    }
    let mut own = Vec::with_capacity(entries.len());
    let mut sources = Vec::new();
    for entry in std::mem::take(entries) {
        if &*entry.key != "<<" {
            own.push(entry);
            continue;
        }
        let merged = match entry.node.value {
            Value::List(items) => items,
            _ => vec![entry.node],
        };
        for source in merged {
            match source.value {
                Value::Map(merged) => sources.push(merged),
                _ => return Err(unreadable(entry.at, "`<<` takes a map or a list of maps")),
            }
        }
    }
    let mut known: BTreeSet<Box<str>> = own.iter().map(|entry| entry.key.clone()).collect();
    for source in sources {
        for entry in source {
            if known.insert(entry.key.clone()) {
                own.push(entry);
            }
        }
    }
    *entries = own;
    Ok(())
}

fn cost(node: &TreeNode) -> Cost {
    match &node.value {
        Value::Null => Cost { nodes: 1, text: 0, height: 0 },
        Value::Plain(text) | Value::Text(text) => Cost { nodes: 1, text: text.len(), height: 0 },
        Value::List(items) => items.iter().map(cost).fold(Cost { nodes: 1, text: 0, height: 1 }, Cost::around),
        Value::Map(entries) => entries.iter().fold(Cost { nodes: 1, text: 0, height: 1 }, |sum, entry| {
            let mut sum = sum.around(cost(&entry.node));
            sum.text += entry.key.len();
            sum
        }),
    }
}

impl Cost {
    fn around(self, inner: Self) -> Self {
        Self {
            nodes: self.nodes + inner.nodes,
            text: self.text + inner.text,
            height: self.height.max(inner.height + 1),
        }
    }
}

fn position(marker: &Marker) -> Position {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: count(marker.line()), column: count(marker.col()).saturating_add(1) }
}

fn unreadable(at: Position, message: impl Into<String>) -> Unreadable {
    Unreadable { at, message: message.into() }
}

fn too_deep(at: Position) -> Unreadable {
    unreadable(at, format!("nested more than {MAX_DEPTH} levels deep"))
}

fn unsupported_tag(tag: &Tag, at: Position) -> Unreadable {
    unreadable(at, format!("the tag {:?} has no meaning in a manifest", tag.original()))
}
