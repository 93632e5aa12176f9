"""JSON by parts: the program writes the braces, the model fills in values, each in its own shape.

    pando run examples/json_parts.py --arg place=Rome

The result is valid JSON whatever the model says, if the list of sights fits into its tokens: no
other part of the syntax is generated.
"""

import json

import pando

SIGHTS = {
    "type": "array",
    "items": {"type": "string", "minLength": 3, "maxLength": 24},
    "minItems": 1,
    "maxItems": 3,
}


@pando.program
def json_parts(s, place="Paris"):
    """Appends one JSON object."""
    s += f"Facts about the city of {place} as JSON:\n"
    s += '{"city": ' + json.dumps(place) + ', "country": "'
    s += pando.gen("country", max_tokens=8, temperature=0, regex='[A-Z][A-Za-z ]*"', stop='"')
    s += '", "size": "' + pando.select("size", ["small", "medium", "large"])
    s += '", "founded": ' + pando.gen(
        "founded", max_tokens=5, temperature=0, regex="[1-9][0-9]{1,3}"
    )
    s += (
        ', "sights": ' + pando.gen("sights", max_tokens=48, temperature=0, json_schema=SIGHTS) + "}"
    )


if __name__ == "__main__":
    result = json_parts.run(temperature=0)
    text = result.text()
    print(json.dumps(json.loads(text[text.index("{") :]), indent=2))
