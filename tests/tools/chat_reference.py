"""Renders chat templates with Hugging Face's transformers and a fixed clock, as the reference for make-chat-fixtures
and compare-templates. Needs `pip install transformers==5.24.0 jinja2==3.1.6`; no PyTorch, no network."""

import datetime

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2024, 7, 26, 15, 4, 5, 678)


def render(case):
    """Renders {"template", "messages", "tools", "add_generation_prompt", "continue_final_message", "variables"}; raises what
    Jinja2 raises."""
    compiled = chat_template_utils._compile_jinja_template(case["template"])
    compiled.globals["strftime_now"] = NOW.strftime
    rendered, _ = chat_template_utils.render_jinja_template(
        [case.get("messages", [])], tools=case.get("tools"), chat_template=case["template"],
        add_generation_prompt=case.get("add_generation_prompt", False),
        continue_final_message=case.get("continue_final_message", False), **case.get("variables", {}))
    return rendered[0]


def render_or_none(case):
    """The rendered text, or None if rendering raises."""
    try:
        return render(case)
    except Exception:  # a template can make Python raise anything
        return None
