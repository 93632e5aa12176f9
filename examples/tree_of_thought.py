"""Tree of thought: several ideas at once, each is judged, the best one is carried out.

    pando run examples/tree_of_thought.py --trace out.svg

The ideas are branches of one fork: they run side by side on the same pages. Which of them is best
is known only when their grades are there, so Python looks at values, and the program runs as a
session on one worker: `pando run` says by which line.
"""

import pando

GRADES = ["poor", "fair", "good", "excellent"]


@pando.program
def tree_of_thought(s, problem="How can a small town cut its traffic?", width=3):
    """Returns the plan that is made of the best idea."""
    s += pando.system("You are a practical engineer. Answer in one short sentence.")
    s += pando.user(f"{problem} Name one idea.")
    ideas = s.fork(width)
    for idea in ideas:
        idea += pando.assistant(pando.gen("idea", max_tokens=32, stop="\n", temperature=0.8))
        idea += pando.user("How good is this idea?")
        idea += pando.assistant("The idea is " + pando.select("grade", GRADES) + ".")
    best = max(ideas, key=lambda idea: GRADES.index(idea["grade"]))
    best += pando.user("What is the first step to carry it out?")
    best += pando.assistant(pando.gen("step", max_tokens=40, temperature=0, stop="\n"))
    return f"{best['idea'].strip()} First step: {best['step'].strip()}"


if __name__ == "__main__":
    result = tree_of_thought.run(seed=1)
    print(result.trace())
    print(result.returned)
