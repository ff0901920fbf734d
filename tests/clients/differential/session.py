"""Reads a fixed session from lines of text."""


def session(title, text):
    """Steps of lines `connection: word word`; `''` is an empty word, escapes are Python's."""
    steps = []
    for line in filter(None, map(str.strip, text.strip().split("\n"))):
        connection, command = line.split(": ", 1)
        words = [b"" if word == "''" else word for word in command.split(" ")]
        args = [
            word if word == b"" else word.encode().decode("unicode_escape").encode("latin-1")
            for word in words
        ]
        steps.append((connection, args))
    return (title, steps)
