"""A language, compiled for the model's vocabulary: of this every answer's matcher is a copy."""

from __future__ import annotations

from dataclasses import dataclass

from llguidance import LLMatcher, LLParserLimits

from worker.errors import InvalidRequest
from worker.grammar.outlook import closed, is_open
from worker.grammar.source import Source
from worker.grammar.vocabulary import Tokens

# Of the library's defaults only the memory is cut: 1 to 2 kB a state, for every answer. The fuel
# keeps a mask below about 15 ms and a compilation below about a second.
LIMITS = LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=20_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
# By these words in its error the library says that a limit was met, whatever reason it gives.
_LIMITS_MET = ("too many", "max is", "limit", "fuel", "too complex", "TooComplex")


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """A compiled language. Many sequences share it; none changes it.

    ends: ids that never show up as text, but those that the source may hold; the ids that end a
    sequence are among them. hidden: the same as bits.
    """

    source: Source
    base: LLMatcher
    tokens: Tokens
    ends: frozenset[int]
    hidden: int

    def masked(self, bits: bytes) -> bytes:
        """Returns the library's bits as a mask: without `ends`."""
        mask = bits[: self.tokens.num_bytes]
        if not self.source.may_name_ids:
            return closed(mask, self.tokens.eos)  # no other special id was open
        shown = int.from_bytes(mask, "little") & ~self.hidden
        return shown.to_bytes(len(mask), "little")

    def failure(self, matcher: LLMatcher) -> InvalidRequest:
        """Returns why a matcher can't go on."""
        source = self.source
        if any(words in matcher.get_error() for words in _LIMITS_MET):
            return InvalidRequest(
                source.param,
                f"{source.name} takes more work at one token than this worker gives; simplify it.",
            )
        return InvalidRequest(
            source.param, f"{source.name} leaves no token with which the answer can go on."
        )


def compiled(source: Source, tokens: Tokens) -> Grammar:
    """Returns the language of a source. Raises InvalidRequest."""
    base = LLMatcher(tokens.library, source.text, log_level=0, limits=LIMITS)
    if base.is_error():
        raise source.refused(base.get_error())
    ends = tokens.ends - source.ids
    grammar = Grammar(source, base, tokens, ends, sum(1 << one for one in ends))
    # The first mask is computed for its own sake as well: copies share the lexer's states so far.
    opens = is_open(grammar.masked(base.compute_bitmask()))
    if not opens and (base.is_error() or not base.is_accepting()):
        raise grammar.failure(base)
    return grammar
