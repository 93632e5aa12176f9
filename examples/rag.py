"""One document, ten questions: the document is computed once, and the answers side by side.

    pando run examples/rag.py --trace out.svg

The table shows it: each answer's prompt is the document and one question, and all but the question
is cached.
"""

import pando

DOCUMENT = """The Pando grove stands in the Fishlake National Forest in Utah. It is a clone of
quaking aspen: some forty thousand trunks that grow from one root system. It covers about 43
hectares and weighs about 6,000 tonnes, which makes it the heaviest known organism. Its name is
Latin and means "I spread". Jerry Kemperman and Burton Barnes described it in 1976. Single
trunks live for about 130 years, while the root is many thousand years old. Deer and cattle eat
the young shoots, so that the grove renews itself too slowly; parts of it have been fenced since
2013. In autumn its leaves turn yellow at the same time."""

QUESTIONS = [
    "Where does Pando stand?",
    "Which species is it?",
    "How many trunks has it?",
    "How large is it?",
    "How heavy is it?",
    "What does its name mean?",
    "Who described it?",
    "How old do trunks get?",
    "What eats the young shoots?",
    "Since when have parts been fenced?",
]


@pando.program
def rag(s, document=DOCUMENT):
    """One fork for each question."""
    s += pando.system("Answer in a few words, from the document alone.\n\n" + document)
    forks = s.fork(len(QUESTIONS))
    for fork, question in zip(forks, QUESTIONS, strict=True):
        fork += pando.user(question)
        fork += pando.assistant(pando.gen("answer", max_tokens=24, temperature=0, stop="\n"))


if __name__ == "__main__":
    result = rag.run(temperature=0)
    for number, question in enumerate(QUESTIONS):
        print(f"{question} {result[f'answer#0.{number}'].strip()}")
    print()
    print(result.trace())
