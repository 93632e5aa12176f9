"""Self-consistency: the same question is thought through several times, and the answers vote.

    pando run examples/self_consistency.py --arg votes=7

The question is computed once. The vote is counted behind the run, on its result, so that the
program stays one request.
"""

from collections import Counter

import pando

EXAMPLE = """Question: A box holds 4 red and 3 blue pens. Two are taken out. How many are left?
Thought: 4 + 3 = 7 pens, and 7 - 2 = 5.
Answer: 5

"""
QUESTION = "Tom has 3 bags with 4 apples each. He eats 2 apples. How many apples are left?"


@pando.program
def self_consistency(s, question=QUESTION, votes=5):
    """Each fork thinks at a temperature, and answers with a number."""
    s += EXAMPLE + f"Question: {question}\n"
    forks = s.fork(votes)
    for fork in forks:
        fork += "Thought:" + pando.gen("thought", max_tokens=40, stop="\n", temperature=0.7)
        fork += "\nAnswer: " + pando.gen("answer", max_tokens=4, temperature=0, regex="[0-9]{1,3}")


def vote(result):
    """The answer that most forks gave, and how many did."""
    answers = [value for name, value in result.variables.items() if name.startswith("answer")]
    return Counter(answers).most_common(1)[0]


if __name__ == "__main__":
    result = self_consistency.run(seed=7)
    print(result.trace())
    answer, count = vote(result)
    print(f"{answer}, by {count} votes")
