"""A judge: an essay is graded in a chat of several turns, by three criteria side by side.

    pando run examples/judge.py

Each criterion is a branch that goes on from the same messages. Their grades are then read by the
conclusion: that is the join. Nothing in Python looks at a value, so all of it is one request.
"""

import pando

ESSAY = """Trees make cities cooler. A street with trees can be five degrees cooler in summer than
one without. They also hold rain back, so that drains are not flooded. A city that plants a tree
today saves money for fifty years."""

CRITERIA = ["clarity", "evidence", "style"]
GRADES = ["poor", "fair", "good", "excellent"]


@pando.program
def judge(s, essay=ESSAY):
    """A grade with a reason for each criterion, and a conclusion that reads all of them."""
    s += pando.system("You are a fair teacher who grades essays in short sentences.")
    s += pando.user(f"Read this essay:\n\n{essay}")
    s += pando.assistant("I have read it.")
    forks = s.fork(len(CRITERIA))
    for fork, criterion in zip(forks, CRITERIA, strict=True):
        fork += pando.user(f"How is its {criterion}?")
        with fork.assistant():
            fork += f"The {criterion} is " + pando.select("grade", GRADES) + " because"
            fork += pando.gen("reason", max_tokens=24, temperature=0, stop=[".", "\n"])
    forks.join()
    grades = ", ".join(
        f"{criterion}: {fork['grade']}" for fork, criterion in zip(forks, CRITERIA, strict=True)
    )
    s += pando.user(f"The grades are {grades}. What is the overall grade?")
    s += pando.assistant("Overall it is " + pando.select("overall", GRADES) + ".")


if __name__ == "__main__":
    result = judge.run(temperature=0)
    print(result.trace())
    print(result.text())
