//! `COMMAND INFO`, `DOCS` and `LIST`, written from the rows.

use crate::commands::spec::{CATEGORIES, CommandSpec, Find, KeySpec};
use crate::commands::{Argument, Row, of, subcommands, table};
use crate::net::output::ReplyWriter;
use nigh_store::ReplySink;

/// One element of the answer to COMMAND and COMMAND INFO.
pub(crate) fn info(row: Row, out: &mut ReplyWriter<'_>) {
    let spec = of(row);
    let (first, last, step) = spec.key_range();
    out.array(10);
    out.text(spec.name);
    out.int(i64::from(spec.arity));
    set_of_simple(spec.flag_names(), out);
    out.int(first);
    out.int(last);
    out.int(step);
    let categories = CATEGORIES.split(' ').filter(|name| spec.in_category(name));
    let categories: Vec<String> = categories.map(|name| format!("@{name}")).collect();
    set_of_simple(categories.iter().map(String::as_str), out);
    let tips: Vec<&str> = spec.tips.split_whitespace().collect();
    out.set(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    out.set(spec.keys.len());
    spec.keys.iter().for_each(|key| key_spec(key, out));
    let subs: Vec<Row> = subcommands(row).map(|(row, _)| row).collect();
    out.array(subs.len());
    subs.into_iter().for_each(|sub| info(sub, out));
}

pub(crate) fn set_of_simple<'a>(names: impl Iterator<Item = &'a str>, out: &mut ReplyWriter<'_>) {
    let names: Vec<&str> = names.collect();
    out.set(names.len());
    names.into_iter().for_each(|name| out.simple(name));
}

fn key_spec(key: &KeySpec, out: &mut ReplyWriter<'_>) {
    out.map(if key.notes.is_empty() { 3 } else { 4 });
    if !key.notes.is_empty() {
        out.pair("notes", key.notes);
    }
    out.text("flags");
    set_of_simple(key.flags.split(' '), out);
    out.text("begin_search");
    out.map(2);
    out.pair("type", "index");
    out.text("spec");
    out.map(1);
    out.text("index");
    out.int(i64::from(key.begin));
    out.text("find_keys");
    out.map(2);
    out.text("type");
    let fields: [(&str, i64); 3] = match key.find {
        Find::Range { last, step } => {
            out.text("range");
            [("lastkey", i64::from(last)), ("keystep", i64::from(step)), ("limit", 0)]
        }
        Find::Counted => {
            out.text("keynum");
            [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]
        }
    };
    out.text("spec");
    out.map(fields.len());
    for (name, value) in fields {
        out.text(name);
        out.int(value);
    }
}

/// One pair of the answer to COMMAND DOCS: name and documentation.
pub(crate) fn docs(row: Row, out: &mut ReplyWriter<'_>) {
    let spec = of(row);
    let arguments = spec.arguments();
    let subs: Vec<Row> = subcommands(row).map(|(row, _)| row).collect();
    out.text(spec.name);
    out.map(4 + usize::from(!arguments.is_empty()) + usize::from(!subs.is_empty()));
    let texts = [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group),
        ("complexity", spec.complexity),
    ];
    for (name, text) in texts {
        out.pair(name, text);
    }
    if !arguments.is_empty() {
        out.text("arguments");
        out.array(arguments.len());
        arguments.iter().for_each(|argument| argument_docs(argument, out));
    }
    if !subs.is_empty() {
        out.text("subcommands");
        out.map(subs.len());
        subs.into_iter().for_each(|sub| docs(sub, out));
    }
}

fn argument_docs(argument: &Argument, out: &mut ReplyWriter<'_>) {
    let flags: Vec<&str> = [("optional", argument.optional), ("multiple", argument.multiple)]
        .iter()
        .filter(|flag| flag.1)
        .map(|flag| flag.0)
        .collect();
    let optional_fields = usize::from(argument.key_spec.is_some())
        + usize::from(argument.token.is_some())
        + usize::from(!flags.is_empty())
        + usize::from(!argument.arguments.is_empty());
    out.map(2 + optional_fields);
    out.pair("name", &argument.name);
    out.pair("type", argument.shape.name());
    if let Some(spec) = argument.key_spec {
        out.text("key_spec_index");
        out.int(i64::try_from(spec).unwrap_or(i64::MAX));
    }
    if let Some(token) = argument.token {
        out.pair("token", token);
    }
    if !flags.is_empty() {
        out.text("flags");
        set_of_simple(flags.into_iter(), out);
    }
    if !argument.arguments.is_empty() {
        out.text("arguments");
        out.array(argument.arguments.len());
        argument.arguments.iter().for_each(|inner| argument_docs(inner, out));
    }
}

/// The names that COMMAND LIST answers: of all commands that `keep` wants, subcommands too.
pub(crate) fn list(keep: &dyn Fn(&CommandSpec) -> bool) -> Vec<&'static str> {
    table().iter().filter(|spec| keep(spec)).map(|spec| spec.name).collect()
}
