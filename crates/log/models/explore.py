"""Visits every state that a model can reach, breadth first, and stops at a broken property."""


class Broken(Exception):
    """A property doesn't hold; the text says which."""


def explore(start, successors, states_max=3_000_000):
    """Number of states, and a broken property with the way there, or None.

    `successors(state)` yields pairs of event and next state, and raises Broken.
    """
    came = {start: None}
    layer = [start]
    while layer:
        following = []
        for state in layer:
            try:
                for event, after in successors(state):
                    if after not in came:
                        came[after] = (state, event)
                        following.append(after)
            except Broken as broken:
                return len(came), (str(broken), way(came, state))
        if len(came) > states_max:
            raise SystemExit(f"more than {states_max} states: make the case smaller")
        layer = following
    return len(came), None


def way(came, state):
    """The events that led to a state."""
    events = []
    while came[state] is not None:
        state, event = came[state]
        events.append(event)
    return " ".join(reversed(events))


def need(holds, text):
    """Raises Broken unless a property holds."""
    if not holds:
        raise Broken(text)
