//! A row's syntax as a tree of arguments, for COMMAND DOCS and for completion in the shell.
//!
//! ```text
//! sequence    = item { item } ; choice = sequence { "|" sequence }
//! item        = ( TOKEN [argument] | name [":" type] | "(" choice ")" | "[" choice "]" ) [ "..." ]
//! ```
//!
//! The syntaxes are ours, so what the grammar doesn't have is a mistake that a test finds.
//! Any thread.

use super::spec::CommandSpec;

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// An integer.
    Integer,
    /// A floating-point number.
    Double,
    /// A pattern with `*`, `?` and `[…]`.
    Pattern,
    /// A time since 1970.
    UnixTime,
    /// The token alone.
    PureToken,
    /// One of the arguments below.
    OneOf,
    /// All of the arguments below.
    Block,
}

impl Shape {
    /// The name that COMMAND DOCS has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// One argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name, in lower case.
    pub name: String,
    /// What it is.
    pub shape: Shape,
    /// The word that stands before it, or is it.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Number of the key specification that finds it.
    pub key_spec: Option<usize>,
    /// What it consists of.
    pub arguments: Vec<Argument>,
}

impl Argument {
    fn new(name: String, shape: Shape) -> Self {
        let (optional, multiple) = (false, false);
        Self { name, shape, token: None, optional, multiple, key_spec: None, arguments: Vec::new() }
    }

    /// One that consists of these; a single one is itself.
    fn of(shape: Shape, mut arguments: Vec<Argument>) -> Self {
        if arguments.len() == 1 {
            return arguments.remove(0);
        }
        let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
        let mut name = names.join("_");
        name.truncate(NAME_BYTES);
        Self { arguments, ..Self::new(name, shape) }
    }
}

impl CommandSpec {
    /// The arguments, from the row's syntax.
    pub fn arguments(&self) -> Vec<Argument> {
        let mut parser =
            Parser { words: words(self.syntax), next: 0, keys: 0, specs: self.keys.len() };
        let arguments = parser.choice();
        assert!(parser.next == parser.words.len(), "syntax of {}: stray bracket", self.name);
        let is_sequence = |one: &Argument| {
            one.shape == Shape::Block && one.token.is_none() && !one.multiple && !one.optional
        };
        match arguments {
            one if is_sequence(&one) => one.arguments,
            one => vec![one],
        }
    }
}

/// Words and brackets.
fn words(syntax: &'static str) -> Vec<&'static str> {
    let mut words = Vec::new();
    for mut word in syntax.split_whitespace() {
        while let Some(rest) = word.strip_prefix(['[', '(']) {
            words.push(&word[..1]);
            word = rest;
        }
        let bare = word.trim_end_matches([']', ')']);
        if !bare.is_empty() {
            words.push(bare);
        }
        words.extend((bare.len()..word.len()).map(|at| &word[at..=at]));
    }
    words
}

struct Parser {
    words: Vec<&'static str>,
    next: usize,
    /// Keys seen so far, and key specifications of the row.
    keys: usize,
    specs: usize,
}

fn is_token(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

impl Parser {
    fn peek(&self) -> Option<&'static str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    /// Alternatives; a single one is itself.
    fn choice(&mut self) -> Argument {
        let mut options = vec![self.sequence()];
        while self.take("|") {
            options.push(self.sequence());
        }
        Argument::of(Shape::OneOf, options)
    }

    /// Items one after the other; a single one is itself.
    fn sequence(&mut self) -> Argument {
        let mut items = Vec::new();
        while let Some(word) = self.peek() {
            if matches!(word, "|" | "]" | ")") {
                break;
            }
            items.push(self.item());
        }
        Argument::of(Shape::Block, items)
    }

    fn item(&mut self) -> Argument {
        let word = self.peek().unwrap_or_default();
        self.next += 1;
        let mut item = match word {
            "[" => {
                let mut inner = self.choice();
                assert!(self.take("]"), "a bracket isn't closed");
                inner.optional = true;
                inner
            }
            "(" => {
                let inner = self.choice();
                assert!(self.take(")"), "a bracket isn't closed");
                inner
            }
            token if is_token(token) => self.with_token(token),
            name => self.named(name),
        };
        item.multiple |= self.take("...");
        item
    }

    /// A token, with the arguments that belong to it: all up to the end of the sequence, unless
    /// another token or bracket follows.
    fn with_token(&mut self, token: &'static str) -> Argument {
        let mut owned = Vec::new();
        while let Some(word) = self.peek() {
            let ends = matches!(word, "|" | "]" | ")" | "[" | "...") || is_token(word);
            if ends {
                break;
            }
            owned.push(self.item());
        }
        let mut argument = match owned.is_empty() {
            true => Argument::new(token.to_ascii_lowercase(), Shape::PureToken),
            false => Argument::of(Shape::Block, owned),
        };
        argument.token = Some(token);
        argument
    }

    fn named(&mut self, word: &'static str) -> Argument {
        let (name, shape) = match word.rsplit_once(':') {
            Some((name, "integer")) => (name, Shape::Integer),
            Some((name, "double")) => (name, Shape::Double),
            _ => (word, shape_of(word)),
        };
        let mut argument = Argument::new(name.to_owned(), shape);
        if shape == Shape::Key && self.specs > 0 {
            argument.key_spec = Some(self.keys.min(self.specs - 1));
            self.keys += 1;
        }
        argument
    }
}

/// What an argument of that name is everywhere.
fn shape_of(name: &str) -> Shape {
    match name {
        "key" | "newkey" | "source" | "destination" => Shape::Key,
        "seconds" | "milliseconds" | "increment" | "decrement" | "offset" | "start" | "end"
        | "count" | "cursor" | "numkeys" => Shape::Integer,
        "unix-time-seconds" | "unix-time-milliseconds" => Shape::UnixTime,
        "pattern" => Shape::Pattern,
        _ => Shape::String,
    }
}

/// Longest name of a composed argument, in bytes: enough to tell them apart.
const NAME_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::super::{Run, find, of, table};
    use super::*;

    fn arguments(name: &str) -> Vec<Argument> {
        of(find(name.as_bytes()).expect("a command")).arguments()
    }

    /// Every row's syntax is read whole, and takes at least as many arguments as its arity says.
    #[test]
    fn every_syntax_is_well_formed_and_agrees_with_its_arity() {
        fn least(arguments: &[Argument]) -> usize {
            let one = |argument: &Argument| {
                let inner = match argument.shape {
                    Shape::OneOf => {
                        let each = argument.arguments.iter().map(std::slice::from_ref);
                        each.map(least).min().unwrap_or(0)
                    }
                    Shape::Block => least(&argument.arguments),
                    Shape::PureToken => 0,
                    _ => 1,
                };
                if argument.optional { 0 } else { inner + usize::from(argument.token.is_some()) }
            };
            arguments.iter().map(one).sum()
        }
        for spec in table() {
            let words = spec.name.split('|').count();
            let least = words + least(&spec.arguments());
            let arity = usize::from(spec.arity.unsigned_abs());
            // These take fewer or more than their syntax says, as in Redis: a check of their own
            // follows.
            let own_check =
                "auth client|setinfo client|kill command|getkeys command|getkeysandflags";
            if spec.run != Run::Container && !own_check.split(' ').any(|name| name == spec.name) {
                assert_eq!(least, arity, "{}: {:?}", spec.name, spec.syntax);
            }
        }
    }

    /// SET's options come out as what they are: choices of tokens with values.
    #[test]
    fn options_of_set_become_choices() {
        let set = arguments("set");
        assert_eq!(set.len(), 5);
        assert_eq!((set[0].shape, set[0].key_spec), (Shape::Key, Some(0)));
        assert_eq!((set[2].shape, set[2].optional), (Shape::OneOf, true));
        assert_eq!((set[3].shape, set[3].token), (Shape::PureToken, Some("GET")));
        assert_eq!(set[4].arguments.len(), 5);
        assert_eq!(set[4].arguments[0].token, Some("EX"));
        assert_eq!(set[4].arguments[0].shape, Shape::Integer);
        assert_eq!(set[4].arguments[4].shape, Shape::PureToken);
    }

    /// MSET repeats a pair.
    #[test]
    fn repeated_pair_is_a_block() {
        let mset = arguments("mset");
        assert_eq!(mset.len(), 1);
        assert!(mset[0].multiple && mset[0].shape == Shape::Block);
        assert_eq!(mset[0].arguments.len(), 2);
    }
}
