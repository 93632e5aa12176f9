"""Text of an exact number of common words, each of which most vocabularies hold as one token.

A word comes with the space in front of it, so that so many words are so many tokens for SmolLM2
and, as a rule, for the byte pair vocabularies of other models, wherever the text stands.
"""

from __future__ import annotations

import random

_ALL = """
that with from this have your their they will which more other about were also part them into
these some when time under there than over know people like year such been help what would need
through work most develop many used only first system between where could should well every high
world even form water sign just make years data call then result those each because effect while
process during found count long after return read using lead fact test life very being find right
person back both follow does grow much main before level study great food start good might school
within class often around made said show same power design again small allow care less example
down take support human state called point number build play though body must plan common want
three cell pass social method known real without public still change better hand another report
place present project list product feel light become energy open mean keep others best include
direct various name history create perform home proper stand move among mark look things type
large think against group means rest control here provide several based area family object current
program early focus access last turn risk success making print impact certain period land case
since local head post along value order come discuss text across cost times areas cause able
toward problem systems view major course model else prevent hard line tool special species future
natural plant complex role until second country young works always suggest exist levels step today
given strong little results range ways book next percent flow four similar short working past
space amount free concept heart later author says needs words give paper kind mind improve having
skills field begin parent expect cells changes appear issues story upon concern require whether
types enough likely record usually days address makes away further protect ever going left path
account employ higher growth century collect full super connect fund sure science never side brain
however plants term unique ground groups above event least contain subject sound near modern
affect studies really rather became effects reason quality nature loss pattern cases detail size
hold someone lower general factors million comes explore meet already student global word simple
regard city living single members wind source towards respect either once seen thought deep house
done team file helps created fail aspect engine online live fall methods market needed action
animals idea sent quick reduce target break society soft surface popular color ensure writing
rights mass parts seem values lives port climate entire share rate came friends stress clear below
image whole meaning healthy events context ability taken music money avoid related instead adult
states taking tell micro culture allows review article cannot site five reading check tools except
doing skin clean itself began sense week love remain weight measure offer content true accept
matter draw bring took feed regular parents green terms conduct express stories produce region
fish select months diet face forms total unit company consist hours reflect almost shows half
service doesn soil schools recent claim
"""
WORDS = tuple(_ALL.split())
_MIN_DIGITS = 3


def text(rng: random.Random, num_words: int) -> str:
    """Returns so many words by chance, each with a space in front."""
    return "".join(f" {word}" for word in rng.choices(WORDS, k=num_words))


def sentence(rng: random.Random, num_words: int) -> str:
    """Returns so many words by chance, without a space in front."""
    return text(rng, num_words)[1:]


def block(name: str, num_words: int) -> str:
    """Returns the words that stand for a block of that name: the same name gives the same words.

    Fewer words are the beginning of more. Numbers below 512 ** 3 differ within their first three
    words, which spell them, the lowest digit first; other names differ as words by chance do.
    """
    digits = _digits(int(name)) if name.isdecimal() else []
    rest = random.Random(f"block {name}").choices(WORDS, k=max(0, num_words - len(digits)))
    return "".join(f" {word}" for word in (*digits[:num_words], *rest))


def _digits(number: int) -> list[str]:
    found: list[str] = []
    while number or len(found) < _MIN_DIGITS:
        number, digit = divmod(number, len(WORDS))
        found.append(WORDS[digit])
    return found
