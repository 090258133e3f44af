#!/usr/bin/env python3
"""Renders the chat templates in tests/trainer_ref/chat/fixtures with transformers: expected.json and features.json.

    python3 -m venv V && V/bin/pip install transformers==5.24.0 jinja2==3.1.6
    V/bin/python tests/tools/make-chat-fixtures.py

conversations.json   the conversations: messages, tools, add_generation_prompt, variables
expected.json        by template (templates/NAME.jinja), then by conversation: the text, or null if Jinja2 raises
continued.json       texts that continue_final_message continues, after QUESTION, and by template the prompts, or null
features.json        small templates with one feature each, and the text or null
"""

import json
import pathlib
import sys

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports, which may fail
    print(__doc__)
    sys.exit(0)

import chat_features
import chat_reference

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests/trainer_ref/chat/fixtures"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather — for a city & unit.\nSays \"unknown\" if it's not known.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City, e.g. 'Zürich'"},
        "unit": {"type": "string", "enum": ["°C", "°F"]}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city"]}, "return": {"type": "string"}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search <the web>", "parameters": {"type": "object", "properties": {
        "query": {"type": "string"}, "limit": {"type": "number", "default": 1.5},
        "filter": {"type": "object", "properties": {"site": {"type": "string"}, "safe": {"type": "boolean"}}}}}}}


def call(name, arguments, number="call00001"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


ONE = [{"role": "user", "content": "Hello!"}]
TURNS = [{"role": "system", "content": "You are a helpful assistant. "},
         {"role": "user", "content": "  What's \"2 + 2\"?\n"},
         {"role": "assistant", "content": "It's <b>4</b> & that's {{ final }}.\n"},
         {"role": "user", "content": "Grüße, 日本語, emoji 🙂, tab\t, \u2028 and {% raw %}?"}]
CALLS = [{"role": "user", "content": "Weather in Zürich?"},
         {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Zürich", "unit": "°C"})]},
         {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"t\": 21.5}"},
         {"role": "assistant", "content": "It is 21.5 °C."},
         {"role": "user", "content": "And Bern?"}]
PARALLEL = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Both cities?"},
            {"role": "assistant", "content": "", "tool_calls": [
                call("get_weather", {"city": "Bern", "days": [1, 2]}, "call00001"), call("search", {"query": "a \"b\"", "limit": 2.0}, "call00002")]},
            {"role": "tool", "tool_call_id": "call00001", "content": "rain"},
            {"role": "tool", "tool_call_id": "call00002", "content": "sun"}]
PARTS = [{"role": "system", "content": [{"type": "text", "text": "Look closely. "}]},
         {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is it? "}]},
         {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
         {"role": "user", "content": [{"type": "text", "text": "Sure?"}, {"type": "text", "text": "Really?"}]}]
REASONING = [{"role": "user", "content": "Think."},
             {"role": "assistant", "content": "<think>\nhm, 1 < 2\n</think>\n\nDone."},
             {"role": "user", "content": "Again."},
             {"role": "assistant", "reasoning_content": "\nwell\n", "content": "\nYes.", "tool_calls": [call("search", "{\"query\": 1}")]},
             {"role": "tool", "tool_call_id": "call00001", "content": "found"},
             {"role": "assistant", "thinking": "so", "content": "Found it."}]


def conversation(messages, tools=None, prompt=True, **variables):
    return {"messages": messages, "tools": tools, "add_generation_prompt": prompt, "variables": {**TOKENS, **variables}}


CONVERSATIONS = {
    "one message": conversation(ONE),
    "no prompt": conversation(ONE, prompt=False),
    "several turns": conversation(TURNS),
    "turns without system": conversation(TURNS[1:], prompt=False),
    "ends with the assistant": conversation(TURNS[:3], prompt=False),
    "tools, one message": conversation(ONE, [WEATHER, SEARCH]),
    "tools with a system message": conversation(TURNS, [WEATHER], date_string="1 Jan 2025"),
    "tools as their own message": conversation(TURNS, [WEATHER], tools_in_user_message=False),
    "one call": conversation(CALLS, [WEATHER, SEARCH]),
    "one call without tools": conversation(CALLS),
    "builtin tools": conversation(CALLS, builtin_tools=["code_interpreter", "get_weather"]),
    "parallel calls": conversation(PARALLEL, [WEATHER, SEARCH]),
    "calls of other ids": conversation(json.loads(json.dumps(PARALLEL).replace("call0000", "x")), [SEARCH]),
    "content in parts": conversation(PARTS),
    "reasoning": conversation(REASONING, enable_thinking=True),
    "reasoning off": conversation(REASONING[:3], enable_thinking=False),
    "roles that do not alternate": conversation(ONE + ONE),
    "an unknown role": conversation([{"role": "critic", "content": "Hm."}]),
    "no content": conversation([{"role": "user"}]),
    "no messages": conversation([]),
    "documents": conversation(ONE, documents=[{"title": "T", "text": "a\nb"}, {"text": "c", "Id": 7}]),
}


# Prefixes of answers, many of which also occur in the question, in the templates and in each other.
QUESTION = {"role": "user", "content": "Is 1 < 2, </s> or e/o?"}
PREFIXES = ["<", "e", "/", "s", ">", "assistant", "model\n", "<|", "</s>", "[/INST]", "So ", " So\n\n", "e e", "\u65e5\u672c",
            "<think>\nI", "<think>\na\n</think>\n\nb", "<think>a</think>b", "a</think>", "Is 1 < 2, </s> or e/o?",
            "CONTINUE_FINAL_MESSAGE_TAG", "{{ 'x' }} {% raw %}", "\"q\\"]


def continued(template):
    return [chat_reference.render_or_none({"template": template, "continue_final_message": True, "variables": TOKENS,
                                           "messages": [QUESTION, {"role": "assistant", "content": prefix}]})
            for prefix in PREFIXES]


def main():
    templates = sorted((FIXTURES / "templates").glob("*.jinja"))
    expected = {path.stem: {name: chat_reference.render_or_none({"template": path.read_bytes().decode(), **item})
                            for name, item in CONVERSATIONS.items()} for path in templates}
    features = {template: chat_reference.render_or_none({"template": template, "variables": chat_features.VARIABLES})
                for template in chat_features.templates()}
    addresses = [template for template, text in features.items() if " at 0x" in (text or "")]
    if addresses:
        sys.exit(f"these print addresses, which differ at each run: {addresses}")
    for name, value in (("conversations", CONVERSATIONS), ("expected", expected)):
        (FIXTURES / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    texts = ",\n".join(f"{json.dumps(path.stem)}: {json.dumps(continued(path.read_bytes().decode()), ensure_ascii=False)}"
                       for path in templates)
    inputs = f'"question": {json.dumps(QUESTION)}, "prefixes": {json.dumps(PREFIXES)}, "variables": {json.dumps(TOKENS)}'
    (FIXTURES / "continued.json").write_text(f'{{{inputs}, "expected": {{\n{texts}\n}}}}\n')
    lines = ",\n".join(f"{json.dumps(template, ensure_ascii=False)}: {json.dumps(text, ensure_ascii=False)}"
                       for template, text in features.items())
    variables = json.dumps(chat_features.VARIABLES, ensure_ascii=False)
    (FIXTURES / "features.json").write_text(f'{{"variables": {variables}, "expected": {{\n{lines}\n}}}}\n')
    renderings = [text for texts in expected.values() for text in texts.values()]
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations, {renderings.count(None)} of {len(renderings)} raise; "
          f"{len(features)} features, {list(features.values()).count(None)} raise")


if __name__ == "__main__":
    main()
