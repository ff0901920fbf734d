//! Requests: the arguments of clients come out as they were sent, however the bytes are cut.
//! Requests that Redis refuses are refused with Redis's words.

use nigh_resp::decode::{Args, Batch, ProtocolError, Requests, WordsError, split_words};
use nigh_resp::encode;
use nigh_resp::limits::{self, Limits};
use proptest::prelude::*;

type Command = Vec<Vec<u8>>;

/// Feeds `input` in pieces of the given lengths (the last one repeats), consuming after each piece
/// as a server does; gives the commands and the error, if one ended it.
fn feed(
    input: &[u8],
    pieces: &[usize],
    max_commands: usize,
    mut decoder: Requests,
) -> (Vec<Command>, Option<ProtocolError>) {
    let (mut buf, mut batch, mut commands) = (Vec::new(), Batch::new(), Vec::new());
    let mut rest = input;
    let mut pieces = pieces.iter().copied();
    let mut last = 1;
    while !rest.is_empty() {
        last = pieces.next().unwrap_or(last).max(1);
        let (piece, after) = rest.split_at(last.min(rest.len()));
        buf.extend_from_slice(piece);
        rest = after;
        loop {
            batch.clear();
            let result = decoder.decode(&buf, &mut batch, max_commands);
            for index in 0..batch.len() {
                let args = batch.args(index);
                let command: Command = args.iter(&buf).map(<[u8]>::to_vec).collect();
                assert_has(args, &buf, &command);
                commands.push(command);
            }
            if let Err(error) = result {
                return (commands, Some(error));
            }
            buf.drain(..decoder.consume());
            if batch.len() < max_commands {
                break;
            }
        }
    }
    (commands, None)
}

/// Checks that a command's text with its places, wherever it lies, is the same command.
fn assert_has(args: Args<'_>, buf: &[u8], command: &Command) {
    let Some(text) = args.text(buf) else { return };
    let (mut moved, mut batch) = (b"in front".to_vec(), Batch::new());
    moved.extend_from_slice(text);
    batch.push_places(moved.len() - text.len(), args.places());
    assert!(batch.args(0).iter(&moved).eq(command.iter().map(Vec::as_slice)));
}

fn one_shot(input: &[u8]) -> (Vec<Command>, Option<ProtocolError>) {
    feed(input, &[input.len()], usize::MAX, Requests::new(Limits::requests()))
}

fn error_reply(input: &[u8], decoder: Requests) -> Vec<u8> {
    let (_, error) = feed(input, &[input.len()], usize::MAX, decoder);
    let mut out = Vec::new();
    error.expect("an error").write_reply(&mut out);
    out
}

fn words(line: &[u8]) -> Command {
    let (mut commands, error) = one_shot(line);
    assert_eq!(error, None);
    commands.pop().unwrap_or_default()
}

proptest! {
    /// The server decodes the same arguments that a client encodes, cut at random places and taken
    /// a few commands at a time.
    #[test]
    fn requests_survive_any_cut(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12), 1..12),
        pieces in prop::collection::vec(1usize..50, 1..20),
        max_commands in 1usize..5,
    ) {
        let mut input = Vec::new();
        commands.iter().for_each(|args| encode::request(&mut input, args));
        let decoder = Requests::new(Limits::requests());
        let (decoded, error) = feed(&input, &pieces, max_commands, decoder);
        prop_assert_eq!(error, None);
        prop_assert_eq!(decoded, commands);
    }

    /// Bytes that look like RESP, and mostly are none, give the same commands and the same error,
    /// cut or whole.
    #[test]
    fn broken_requests_fail_alike_however_cut(
        input in prop::collection::vec(
            prop::sample::select(b"*$0123456789-\r\n\r\n \"'\\xaP\0".to_vec()), 0..80),
        pieces in prop::collection::vec(1usize..9, 1..10),
        max_commands in 1usize..4,
    ) {
        let decoder = Requests::new(Limits::requests());
        prop_assert_eq!(feed(&input, &pieces, max_commands, decoder), one_shot(&input));
    }
}

/// The text of a command reaches from its first argument to its last. A command with an unescaped
/// argument has no text.
#[test]
fn a_command_is_passed_on_as_it_came() {
    let text = |input: &[u8], index| {
        let mut batch = Batch::new();
        Requests::new(Limits::requests()).decode(input, &mut batch, 9).expect("commands");
        batch.args(index).text(input).map(<[u8]>::to_vec)
    };
    let mut input = b"PING\r\n".to_vec();
    encode::request(&mut input, ["SET", "k", "v"]);
    encode::request(&mut input, ["", "$1"]);
    assert_eq!(text(&input, 0).as_deref(), Some(&b"PING"[..]));
    assert_eq!(text(&input, 1).as_deref(), Some(&b"SET\r\n$1\r\nk\r\n$1\r\nv"[..]));
    assert_eq!(text(&input, 2).as_deref(), Some(&b"\r\n$2\r\n$1"[..]));
    assert_eq!(text(&input, 3), None);
    assert_eq!(text(b"GET a\r\n", 0).as_deref(), Some(&b"GET a"[..]));
    assert_eq!(text(b"GET \"a\"\r\n", 0), None);
    let mut copied = Batch::new();
    copied.push([&b"GET"[..], b"a"]).expect("room");
    assert_eq!(copied.args(0).text(&input), None);
}

/// A pipeline of every shape at once, cut at every byte, gives the same commands as whole.
#[test]
fn a_pipeline_is_decoded_alike_when_cut_at_every_byte() {
    let mut input = b"*0\r\n*-1\r\n\r\nPING\r\n  SET \"a\\x41\\n\" 'b c'\n".to_vec();
    encode::request(&mut input, ["SET", "key", &"v".repeat(1234)]);
    encode::request(&mut input, (0..120).map(|number| number.to_string()));
    encode::request(&mut input, [""]);
    let (expected, error) = one_shot(&input);
    assert_eq!((expected.len(), error), (5, None));
    assert_eq!(expected[1], [b"SET".to_vec(), b"aA\n".to_vec(), b"b c".to_vec()]);
    for cut in 1..input.len() {
        for max_commands in [1, 2, usize::MAX] {
            let decoder = Requests::new(Limits::requests());
            let (commands, error) = feed(&input, &[cut, input.len()], max_commands, decoder);
            assert_eq!((&commands, error), (&expected, None), "cut at {cut}");
        }
    }
}

/// Each refusal has the bytes that Redis 7.0.15 sends, recorded from it.
#[test]
fn refusals_are_byte_equal_to_redis() {
    let line = |kind: &str| format!("{kind}{}", "1".repeat(limits::INLINE_BYTES + 1)).into_bytes();
    let bulk = b"-ERR Protocol error: invalid bulk length\r\n".as_slice();
    let multibulk = b"-ERR Protocol error: invalid multibulk length\r\n".as_slice();
    let quotes = b"-ERR Protocol error: unbalanced quotes in request\r\n".as_slice();
    let cases: [(&[u8], &[u8]); 22] = [
        (b"*2147483648\r\n", multibulk),
        (b"*1048577\r\n", multibulk), // up to 6.2
        (b"*9223372036854775808\r\n", multibulk),
        (b"*01\r\n", multibulk),
        (b"*+1\r\n", multibulk),
        (b"*-0\r\n", multibulk),
        (b"*a\r\n", multibulk),
        (b"*\r\n", multibulk),
        (b"*1\r\n$-1\r\n", bulk),
        (b"*1\r\n$536870913\r\n", bulk),
        (b"*1\r\n$x\r\n", bulk),
        (b"*1\r\n$\r\n", bulk),
        (b"*1\r\nx\r\n", b"-ERR Protocol error: expected '$', got 'x'\r\n"),
        (b"*1\r\n\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n"),
        (b"*1\r\n\n\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n"),
        (b"*1\r\n\xff\r\n", b"-ERR Protocol error: expected '$', got '\xff'\r\n"),
        (b"ECHO \"a\r\n", quotes),
        (b"ECHO \"a\"b\r\n", quotes),
        (b"ECHO \"a\\\r\n", quotes),
        (&line(""), b"-ERR Protocol error: too big inline request\r\n"),
        (&line("*"), b"-ERR Protocol error: too big mbulk count string\r\n"),
        (
            &[b"*1\r\n$".to_vec(), line("")].concat(),
            b"-ERR Protocol error: too big bulk count string\r\n",
        ),
    ];
    for (input, reply) in cases {
        let decoder = Requests::new(Limits::requests());
        assert_eq!(error_reply(input, decoder), reply, "{}", input.escape_ascii());
    }
}

/// Before AUTH, at most ten arguments of 16 KiB are allowed; after it, more.
#[test]
fn limits_before_auth_are_narrow() {
    let stranger = || {
        let mut decoder = Requests::new(Limits::requests());
        decoder.set_authenticated(false);
        decoder
    };
    let length = b"-ERR Protocol error: unauthenticated multibulk length\r\n";
    assert_eq!(error_reply(b"*11\r\n", stranger()), length);
    let length = b"-ERR Protocol error: unauthenticated bulk length\r\n";
    assert_eq!(error_reply(b"*1\r\n$16385\r\n", stranger()), length);
    assert_eq!(feed(b"*10\r\n$16384\r\n", &[99], 1, stranger()), (vec![], None));

    let mut decoder = stranger();
    decoder.set_authenticated(true);
    assert_eq!(feed(b"*11\r\n$16385\r\n", &[99], 1, decoder), (vec![], None));
}

/// The largest lengths allowed are accepted: nothing is refused at its limit.
#[test]
fn lengths_at_their_limit_are_accepted() {
    let inline = [&b"a".repeat(limits::INLINE_BYTES)[..], b"\n"].concat();
    for input in [b"*1048576\r\n".as_slice(), b"*1\r\n$536870912\r\n", &inline] {
        assert_eq!(one_shot(input).1, None);
        // Its end is still to come.
        assert_eq!(one_shot(&input[..input.len() - 1]).1, None);
    }
}

/// Like Redis, the decoder looks only at the CR of a header's end, and not at the end of a bulk.
#[test]
fn lax_line_ends_pass_as_in_redis() {
    assert_eq!(words(b"*1\r\n$4\rxPINGxx"), [b"PING"]);
    assert_eq!(words(b"*-3\r\n*-9223372036854775808\r\nPING\r\n"), [b"PING"]);
    assert_eq!(words(b"\rPING\r\n"), [b"PING"]);
}

/// Inline words are split as Redis's `sdssplitargs` splits them; outcomes recorded from 7.0.15.
#[test]
fn inline_words_follow_the_quoting_of_redis() {
    assert_eq!(words(b"ECHO \"\\x41\\n\\q\\\\\"\r\n"), [b"ECHO".to_vec(), b"A\nq\\".to_vec()]);
    assert_eq!(words(b"ECHO 'a\\'b\\n'\r\n"), [b"ECHO".to_vec(), b"a'b\\n".to_vec()]);
    assert_eq!(words(b"ECHO a\"b c\"\r\n"), [b"ECHO".to_vec(), b"ab c".to_vec()]);
    assert_eq!(words(b"ECHO a\x0bb \x0b\r\n"), [b"ECHO".to_vec(), b"a\x0bb".to_vec()]);
    assert_eq!(words(b"ECHO \"\"\r\n"), [b"ECHO".to_vec(), Vec::new()]);
    assert_eq!(words(b"ECHO a\rb\r\n"), [b"ECHO", b"a".as_slice(), b"b"]);
    assert_eq!(words(b"\"\\x4g\\xg4\\xaF\\xFa\\x09\"\r\n"), [b"x4gxg4\xaf\xfa\t"]);
    assert_eq!(words(b" a 'b' \"c\" \r\n"), [b"a", b"b", b"c"]);
    assert_eq!(words(b"\"\\xZZ\\a\\b\\t\\r\"\n"), [b"xZZ\x07\x08\t\r"]);
}

fn line(text: &str) -> Vec<String> {
    let words = split_words(text.as_bytes()).expect("well-formed");
    words.iter().map(|word| word.escape_ascii().to_string()).collect()
}

/// Blanks separate, quotes group, escapes make any byte.
#[test]
fn words_of_a_line_are_split_as_in_redis_cli() {
    assert_eq!(line("  SET  a\tb "), ["SET", "a", "b"]);
    assert_eq!(line(r#"SET "a b" ''"#), ["SET", "a b", ""]);
    assert_eq!(line(r#"ECHO "\x00\xfF\n\q\"""#), ["ECHO", r#"\x00\xff\nq\""#]);
    assert_eq!(line(r"ECHO 'it\'s \n'"), ["ECHO", r"it\'s \\n"]);
    assert_eq!(line(""), Vec::<String>::new());
}

/// A quote without end, or with something glued to it, is named.
#[test]
fn broken_quotes_are_named() {
    use WordsError::{Glued, OpenDouble, OpenSingle};
    for (text, error) in [
        ("SET 'a", OpenSingle),
        ("SET \"a", OpenDouble),
        ("SET \"a\"b", Glued),
        ("SET 'a'b", Glued),
        ("\"\\", OpenDouble),
    ] {
        assert_eq!(split_words(text.as_bytes()), Err(error), "{text}");
    }
}

/// Good commands before a bad one are executed. Then the error stays.
#[test]
fn commands_before_an_error_come_out_and_the_error_stays() {
    let input = b"PING\r\n*2\r\n$1\r\na\r\n$z\r\nPING\r\n";
    let mut decoder = Requests::new(Limits::requests());
    let mut batch = Batch::new();
    let error = Err(ProtocolError::InvalidBulkLength);
    assert_eq!(decoder.decode(input, &mut batch, usize::MAX), error);
    assert_eq!(batch.len(), 1);
    assert_eq!(batch.args(0).get(input, 0), b"PING");
    assert_eq!(decoder.consume(), 6);
    assert_eq!(decoder.decode(&input[6..], &mut batch, usize::MAX), error);
    assert_eq!(batch.len(), 1);
}

/// A client claims 512 MiB and sends nothing. The hint to reserve stays near the bytes that have
/// arrived, and reaches the whole length only as bytes arrive.
#[test]
fn a_claimed_length_reserves_no_more_than_arrived_bytes_justify() {
    let mut decoder = Requests::new(Limits::requests());
    let mut batch = Batch::new();
    let mut buf = b"*2\r\n$3\r\nSET\r\n$536870912\r\n".to_vec();
    let header = buf.len();
    assert_eq!(decoder.decode(&buf, &mut batch, 1), Ok(()));
    assert_eq!(decoder.needed(), header + (1 << 20));
    buf.resize(4 << 20, 0);
    assert_eq!(decoder.decode(&buf, &mut batch, 1), Ok(()));
    assert_eq!(decoder.needed(), 8 << 20);
    assert!(batch.is_empty());
    assert_eq!(decoder.consume(), 0);
}

/// When the end of an arriving body is near, the hint is exactly that end.
#[test]
fn the_hint_ends_with_the_argument() {
    let mut decoder = Requests::new(Limits::requests());
    assert_eq!(decoder.needed(), 0);
    assert_eq!(decoder.decode(b"*1\r\n$10\r\nabc", &mut Batch::new(), 1), Ok(()));
    assert_eq!(decoder.needed(), 9 + 10 + 2);
}

/// A million commands at once, and a command of a million arguments, take no recursion and no
/// quadratic time.
#[test]
fn a_million_of_anything_is_decoded() {
    let million = 1_000_000;
    assert_eq!(one_shot(&b"*1\r\n$4\r\nPING\r\n".repeat(million)).0.len(), million);
    let mut input = format!("*{million}\r\n").into_bytes();
    input.extend(b"$1\r\na\r\n".repeat(million));
    let decoder = Requests::new(Limits::requests());
    let (commands, error) = feed(&input, &[4096], usize::MAX, decoder);
    assert_eq!((commands.len(), commands[0].len(), error), (1, million, None));
}

/// A command queued by MULTI is copied, and is the same after the input is gone.
#[test]
fn a_copied_command_outlives_its_input() {
    let mut input = Vec::new();
    encode::request(&mut input, ["SET", "k", "", "v"]);
    let (mut batch, mut queued) = (Batch::new(), Batch::new());
    let mut decoder = Requests::new(Limits::requests());
    assert_eq!(decoder.decode(&input, &mut batch, 9), Ok(()));
    assert_eq!(queued.push(batch.args(0).iter(&input)), Ok(()));
    let args = queued.args(0);
    assert_eq!(args.iter(&[]).collect::<Vec<_>>(), [b"SET".as_slice(), b"k", b"", b"v"]);
    assert_eq!(args.from(3).iter(&[]).collect::<Vec<_>>(), [b"v"]);
    assert_eq!((args.len(), args.from(9).len(), queued.args(1).len()), (4, 0, 0));
    assert_eq!(args.get(&[], 4), b"");
}

/// An input buffer of 2 GiB is refused, whatever is in it: positions have 31 bits.
#[test]
fn a_buffer_of_2_gib_is_refused() {
    // Untouched zeros take no memory.
    let zeros = vec![0; 1 << 31];
    let decode = |buf| Requests::new(Limits::requests()).decode(buf, &mut Batch::new(), 1);
    assert_eq!(decode(&zeros), Err(ProtocolError::TooBigRequest));
    assert_eq!(decode(&zeros[1..]), Err(ProtocolError::TooBigInline));
}

/// A caller gets as many commands as it asks for, of those too that arrived in two parts: AUTH
/// changes what may follow it.
#[test]
fn no_more_commands_come_out_than_are_wanted() {
    let input = b"*1\r\n$4\r\nPING\r\n".repeat(4);
    let (mut decoder, mut batch) = (Requests::new(Limits::requests()), Batch::new());
    for (arrived, wanted, commands) in
        [(10, 9, 0), (56, 0, 0), (56, 1, 1), (56, 2, 3), (56, 9, 4), (56, 0, 4)]
    {
        assert_eq!(decoder.decode(&input[..arrived], &mut batch, wanted), Ok(()));
        assert_eq!(batch.len(), commands, "{wanted} of {arrived} bytes");
    }
}

/// After commands are consumed, the hint to reserve counts the rest of the buffer.
#[test]
fn a_hint_after_consumed_commands_counts_what_is_left() {
    let mut decoder = Requests::new(Limits::requests());
    let mut buf = Vec::new();
    encode::request(&mut buf, ["SET", "k", &"v".repeat(3 << 20)]);
    let whole = buf.len();
    buf.extend_from_slice(b"*1\r\n$536870912\r\n");
    assert_eq!(decoder.decode(&buf, &mut Batch::new(), 9), Ok(()));
    assert_eq!(decoder.consume(), whole);
    assert_eq!(decoder.needed(), buf.len() - whole + (1 << 20));
}

/// New limits hold from the next header on, for short headers too, which have a quick way.
#[test]
fn new_limits_hold_from_the_next_header_on() {
    let mut decoder = Requests::new(Limits::requests());
    let mut batch = Batch::new();
    let input = b"*2\r\n$3\r\nGET\r\n$11\r\n";
    assert_eq!(decoder.decode(&input[..13], &mut batch, 9), Ok(()));
    decoder.set_limits(Limits { bulk_bytes: 10, ..Limits::requests() });
    assert_eq!(decoder.decode(input, &mut batch, 9), Err(ProtocolError::InvalidBulkLength));
    let mut decoder = Requests::new(Limits { bulk_bytes: 10, ..Limits::requests() });
    assert_eq!(decoder.decode(b"*1\r\n$10\r\n0123456789\r\n", &mut batch, 9), Ok(()));
    assert_eq!(batch.len(), 1);
}
