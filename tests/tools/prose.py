#!/usr/bin/env python3
"""Checks the project's prose: phrases that make a reader look twice, dead links and dead anchors.

    tests/tools/prose.py [FILE ...]     all of the project's texts, or some

It reads Markdown, the comments of C++ and Python, docstrings, and strings of C++ that are texts for a person: those of
at least four words, such as help texts and errors. Code in Markdown is not read. A phrase may stand where it is right:
ALLOWED lists these places, each with its reason.
"""
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# A pattern and what to write instead. Case is ignored.
HABITS = [
    (r"(?<!copies )(?<!copied )(?<!copying )(?<!copy )(?<!fall )(?<!falls )(?<!fell )\bbehind\b(?! (a|the|its|your|one) (firewall|proxy|NAT|load balancer|same API|writer))(?!\W*$|[.,;:)]| in | by )", "after, following, once (behind is for space)"),
    (r"\bof (its|their|his) own\b", "its own X, a separate X"),
    (r"\b(?<!all )(that|those) of (?!(the|these|those|its|all|our|us|which)? ?(kinds?|sorts?)\b)", "name the thing: the policy's log-probabilities"),
    (r"\bwhat (came|comes|became|becomes) of\b", "the result"),
    (r"\bnobody\b|\bwhoever\b", "no process, no one; whichever process"),
    (r"(?<!\bnot), too\b(?! (much|many|long|large|small|big|few|little|old|new|late|early|short|high|low|far|slow))", "also, before the verb"),
    (r"\btoo[.;:)]", "also, before the verb"),
    (r", also (while|before|after|if|when|of|in|for|from|under|without)\b", "even, including"),
    (r"\blikewise\b|\bas ever\b|\bof late\b", "drop it, or: also, recently"),
    (r"\bno more\b(?! than)", "no longer"),
    (r"\bat the (most|least)\b", "at most, at least"),
    (r"\bfrom [^.;,()]{1,40} on\b(?! (the|a|an|one|this|that|each|every|another|other|its|their|any|some|all|GPUs?|CPUs?|disk|hosts?|[A-Z0-9]))", "starting with"),
    (r"\bwhere (it|there|they|he|nothing|none|no|someone|something|one|that) (is|are|was|were|has|have|can|could|does|do|needs?|exists?)\b", "if, when"),
    (r"\b(wish|wishes|wished)\b", "request"),
    (r"\b(hears|heard|hear)\b", "receives, detects"),
    (r"\b(news|lesson|lessons)\b", "event, message"),
    (r"\bone (error|line|thread|file|page|slot) a (thread|step|send|worker|slot|version|file)\b", "per"),
    (r"\b(lines?|messages?|workers?|tokens?|seconds?|bytes|milliseconds|ms|times) a (step|send|worker|run|token|version|GiB|message|slot|row|tensor)\b", "per"),
    (r"\bsimply\b|\brobust(ly)?\b|\bseamless(ly)?\b|\bblazing(ly)?\b", "leave it out, or give the figure"),
]

# (path, the words as they stand there, why they are right)
ALLOWED = [
    ("transport/delivery.h", "heard(worker, bytes)", "the name of a function"),
]

TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def markdown_lines(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "`x`", line)


def comment_lines(text):
    """Comments of C++, and strings of four words or more."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#include"):
            continue
        code, slashes, comment = line.partition("//")
        while slashes and code.count('"') % 2:  # in a string, as of a URL
            more, slashes, comment = comment.partition("//")
            code += "//" + more
        if comment:
            yield number, comment
        words = " ".join(TEXT.findall(code))
        if len(words.split()) >= 4:
            yield number, words


def python_lines(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node):
                first = node.body[0]
                for number, line in enumerate(first.value.value.splitlines(), first.lineno):
                    yield number, line
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 4:
            yield node.lineno, node.value


def shell_lines(text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#|.*\s# ", line) or len(line.split('"')) > 2:
            yield number, line


def joined(lines):
    """Each line with the start of the next one, since a phrase may run over a line's end: (number, text, own length)."""
    lines = list(lines)
    for (number, line), after in zip(lines, lines[1:] + [(None, "")]):
        tail = re.sub(r"^\W*", "", after[1])[:40] if after[0] == number + 1 else ""
        yield number, line.rstrip() + " " + tail, len(line.rstrip())


def reader_of(path):
    if path.suffix == ".md":
        return markdown_lines
    if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
        return comment_lines
    if path.suffix == ".py":
        return python_lines
    first = path.open("rb").readline(80)
    if first.startswith(b"#!"):
        return python_lines if b"python" in first else shell_lines
    return None


def habits_of(path, name):
    reader = reader_of(path)
    if not reader:
        return
    for number, text, own in joined(reader(path.read_text())):
        for pattern, instead in HABITS:
            for found in re.finditer(pattern, text, re.IGNORECASE):
                if found.start() >= own:
                    continue  # the next line reports it
                if any(name == place and words in text for place, words, _ in ALLOWED):
                    continue
                yield f"{name}:{number}: \"{found.group().strip()}\"; write: {instead}"


def anchors_of(path):
    """The anchors that GitHub makes of a page's headings."""
    anchors, fenced = set(), False
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = re.match(r"#+ (.*)", line)
        if heading and not fenced:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            while anchor in anchors:
                anchor += "-1"
            anchors.add(anchor)
    return anchors


def links_of(path, name):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "x", text)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        page = (path.parent / target).resolve() if target else path
        if not page.exists():
            yield f"{name}: the link to {target} leads nowhere"
        elif anchor and page.suffix == ".md" and anchor not in anchors_of(page):
            yield f"{name}: {target or name} has no heading #{anchor}"


def mentions_of(path, name):
    """Pages that a source, script or text names by their path."""
    for page in re.findall(r"(?<![\w/.-])((?:docs|schemes)/[\w/-]+\.md)", path.read_text()):
        if not (ROOT / page).exists():
            yield f"{name}: {page} does not exist"


def main():
    given = sys.argv[1:]
    if given and given[0] in ("-h", "--help"):
        print(__doc__)
        return
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    names = [str(pathlib.Path(name).resolve().relative_to(ROOT)) for name in given] or listed
    findings = []
    for name in names:
        path = ROOT / name
        if not path.is_file() or name == "tests/tools/prose.py" or "/fixtures/" in name:
            continue
        try:
            path.read_text()
        except UnicodeDecodeError:
            continue
        findings += habits_of(path, name)
        findings += mentions_of(path, name)
        if path.suffix == ".md":
            findings += links_of(path, name)
    print("\n".join(findings))
    if findings:
        sys.exit(f"prose: {len(findings)} places above read like a translation, or lead nowhere; tests/tools/prose.py says "
                 "what to write instead, and has the list of exceptions, each with its reason")


if __name__ == "__main__":
    main()
