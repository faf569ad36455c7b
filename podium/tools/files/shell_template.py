"""Templates of shell commands: arguments become parameters of ``/bin/sh``, whatever quotes stand around them.

The quoting of the template is read, and each ``${args.NAME}`` becomes a reference to a variable of the shell in double
quotes, which the shell neither splits nor reads again::

    echo ${args.a} 'b ${args.b}' "c ${args.c}"
    _arg1=$1; _arg2=$2; _arg3=$3; shift 3
    echo "${_arg1}" 'b '"${_arg2}"'' "c ${_arg3}"

So the command has exactly the value, as a part of one word. Values are assigned to variables first: ``$1`` is another
one in a function, and after ``set``. A template with arguments is refused where the shell would read the value again as
code (``eval``, ``sh -c``, arithmetic), or where what it does is not certain: in backquotes, in here-documents, and in
braces of parameters. A value in the place of a command's name is refused, too, and where bash, which may be
``/bin/sh``, takes the name of a variable. A program that reads one of its
arguments as code, such as ``awk`` or ``ssh``, does that with a value as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from podium.tools.files.template import Argument, TemplateError, arguments_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from podium.tools.files.template import Piece

__all__ = ["ShellScript", "shell_script"]

_SIMPLE_PARAMETER: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DESCRIPTOR: Final = re.compile(r"[0-9]+|\{[A-Za-z0-9_]+\}")
"""What may stand right before a redirection, and is no word then."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_VALUE_OPTION: Final = re.compile(r"[-+][A-Za-z]*[oO][A-Za-z]*|--(rcfile|init-file)")
"""Options of shells that the next word belongs to."""
_CODE_OPTION: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_CODE: Final = frozenset({"eval", "[[", "let", ".", "source", "trap", "function"})
"""Builtins that read their arguments as code."""
_NAMES: Final = frozenset(
    {
        *("alias", "declare", "export", "getopts", "local", "mapfile", "read", "readarray", "readonly", "typeset"),
        *("unset", "wait"),
    }
)
"""Builtins whose arguments are names, or assignments: bash runs code in the index of a name."""
_PREFIXES: Final = frozenset({"builtin", "command", "env", "exec", "time"})
"""What runs the command behind it."""
_PREFIX_OPTIONS: Final = frozenset({"--", "-i", "-p"})
"""Options of these that no value follows."""
_BEFORE_COMMAND: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "coproc"})
_SEPARATORS: Final = ";&|\n()"


@dataclass(frozen=True, slots=True)
class ShellScript:
    """A script of ``/bin/sh``, and the arguments that are its parameters, in order."""

    text: str
    arguments: Sequence[str]


@dataclass(slots=True)
class _Frame:
    """What is being read: the words of a command, within one level of parentheses."""

    closes: str
    """``)`` inside of ``$(…)``, a double quote inside of one; empty at the top."""
    words: list[str] = field(default_factory=list)
    """Of the simple command so far."""
    word: str | None = None
    """The literal text of the word that is read; ``None`` between words."""
    redirects: bool = False
    """Whether the word is the file of a redirection."""
    depth: int = 0
    """Parentheses that are open within."""


def shell_script(pieces: Sequence[Piece]) -> ShellScript:
    """Return the script of a template.

    Raises:
        TemplateError: an argument stands where it could become more than a value.
    """
    named = arguments_in(pieces)
    if not named:
        return ShellScript("".join(map(str, pieces)), ())
    script = _Reader(pieces).read()
    bound = "".join(f"_arg{number}=${{{number}}}; " for number in range(1, len(named) + 1))
    return ShellScript(f"{bound}shift {len(named)}\n{script}", [each.name for each in named])


class _Reader:
    """Reads a template once, from the left."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._frames = [_Frame("")]
        self._out: list[str] = []
        self._arguments = 0
        self._next = arguments_in(pieces)[0].offset
        """Where the next argument is, for errors."""
        self._quoted = False
        """Whether single quotes are open."""
        self._comment = False

    def read(self) -> str:
        for piece in self._pieces:
            if isinstance(piece, Argument):
                self._next = piece.offset
                self._argument(piece)
            else:
                self._text(piece)
        if self._quoted or len(self._frames) > 1 or self._frames[0].depth:
            raise self._refused("the quotes or parentheses of the template are not closed")
        return "".join(self._out)

    # -- inside ---------------------------------------------------------------------------------------------------

    @property
    def _frame(self) -> _Frame:
        return self._frames[-1]

    def _refused(self, reason: str) -> TemplateError:
        return TemplateError(reason, self._next)

    def _argument(self, argument: Argument) -> None:
        self._arguments += 1
        if self._comment:
            return
        if self._out[-1:] == ["\\"] and not self._quoted:
            raise self._refused("a backslash stands before an argument; leave it out: the value is quoted")
        if self._out[-1:] == ["$"] and not self._quoted:
            raise self._refused("a $ stands before an argument")
        self._check_command(argument)
        reference = f"${{_arg{self._arguments}}}"
        if self._quoted:
            self._out.append(f"'\"{reference}\"'")
        elif self._frame.closes == '"':
            self._out.append(reference)
        else:
            self._out.append(f'"{reference}"')
        holder = self._holder()
        holder.word = (holder.word or "") + "\0"  # which is in no word of a shell

    def _holder(self) -> _Frame:
        """Return the frame whose word is being read: that around a double quote."""
        return self._frames[-2] if self._frame.closes == '"' else self._frame

    def _check_command(self, argument: Argument) -> None:
        """Check the simple commands around an argument."""
        named = f"${{args.{argument.name}}}"
        for frame in self._frames:
            program, words = self._program(frame.words)
            is_assigned = _ASSIGNMENT.match(frame.word or "") is not None
            if program in _CODE or (program in _NAMES and not is_assigned):
                raise self._refused(f"{program} would read {named} as code")
            if _reads_name(program, words):
                raise self._refused(f"{program} could read {named} as a name, in which a shell may find code")
            if _is_code_of_shell(frame.words):
                raise self._refused(f"{named} would be read as code; write such as sh -c 'echo \"$1\"' sh {named}")
        holder = self._holder()
        is_assigned = _ASSIGNMENT.match(holder.word or "") is not None
        if not self._program(holder.words)[0] and not holder.redirects and not is_assigned:
            raise self._refused(f"{named} stands where the name of a command does")

    def _program(self, words: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the program of a simple command, empty if there is none so far, and the words behind it."""
        prefix = ""
        for at, word in enumerate(words):
            name = word.rpartition("/")[2]
            if name in _PREFIXES:
                prefix = name
            elif prefix and word.startswith("-"):
                if word not in _PREFIX_OPTIONS:
                    raise self._refused(f"a template with arguments has no option {word} of {prefix}")
            elif word not in _BEFORE_COMMAND and _ASSIGNMENT.match(word) is None:
                return name, words[at + 1 :]
        return "", ()

    def _text(self, text: str) -> None:
        at = 0
        while at < len(text):
            at += self._take(text, at)

    def _take(self, text: str, at: int) -> int:
        """Read what is at a place, and return its length."""
        char = text[at]
        self._comment = self._comment and char != "\n"
        if self._comment:
            pass
        elif self._quoted:
            self._quoted = char != "'"
            if self._quoted:
                self._add(char)
        elif char == "\\" and at + 1 < len(text):
            if text[at + 1] != "\n":  # which continues the line
                self._add(text[at + 1])
            self._out.append(text[at : at + 2])
            return 2
        elif char == "`":
            raise self._refused("a template with arguments has no backquotes; write $(…)")
        elif char == "$":
            return self._dollar(text, at)
        elif char == '"':
            self._double_quote()
        elif self._frame.closes == '"':
            self._add(char)
        else:
            self._bare(text, at)
            return 1
        self._out.append(char)
        return 1

    def _bare(self, text: str, at: int) -> None:
        """Read a character outside of quotes."""
        char, frame = text[at], self._frame
        self._out.append(char)
        if char == "'":
            self._quoted = True
            frame.word = frame.word or ""
        elif char == "#" and frame.word is None:
            self._comment = True
        elif text.startswith("<<", at):
            raise self._refused("a template with arguments has no here-documents")
        elif char in "<>":
            if _DESCRIPTOR.fullmatch(frame.word or ""):
                frame.word = None
            self._end_word()
            frame.redirects = True
        elif char in " \t" or (char in "&|" and self._out[-2:-1] in (["<"], [">"])) or (text.startswith("&>", at)):
            self._end_word()
        elif char == "(":
            if self._out[-2:-1] == ["("]:
                raise self._refused("a template with arguments has no arithmetic")
            self._end_command()
            frame.depth += 1
        elif char == ")":
            self._close()
        elif char in _SEPARATORS:
            self._end_command()
        else:
            self._add(char)

    def _dollar(self, text: str, at: int) -> int:
        """Read what begins with a dollar."""
        if text.startswith(("$((", "$["), at):
            raise self._refused("a template with arguments has no arithmetic")
        if text.startswith("$(", at):
            self._add("$")
            self._frames.append(_Frame(")"))
            self._out += ["$", "("]
            return 2
        if text.startswith("${", at):
            found = _SIMPLE_PARAMETER.match(text, at)
            if found is None:
                raise self._refused("a template with arguments has parameters as $NAME or ${NAME} only")
            self._add(found[0])
            self._out.append(found[0])
            return len(found[0])
        if text.startswith("$'", at) and self._frame.closes != '"':
            raise self._refused("a template with arguments has no $'…', which shells read in different ways")
        self._add("$")
        self._out.append("$")
        return 1

    def _double_quote(self) -> None:
        if self._frame.closes == '"':
            self._frames.pop()
        else:
            self._frame.word = self._frame.word or ""
            self._frames.append(_Frame('"'))

    def _close(self) -> None:
        frame = self._frame
        self._end_command()
        if frame.depth:
            frame.depth -= 1
        elif frame.closes == ")":
            self._frames.pop()
        else:
            raise self._refused("a parenthesis is closed that was not opened")

    def _add(self, char: str) -> None:
        holder = self._holder()
        holder.word = (holder.word or "") + char

    def _end_word(self) -> None:
        frame = self._frame
        word, frame.word = frame.word, None
        if word is None:
            return
        if frame.redirects:
            frame.redirects = False
        elif word == "case":
            raise self._refused("a template with arguments has no case: its parentheses are not told apart")
        elif word == "do" and frame.words[:1] == ["for"]:
            frame.words = []  # as in: for each do …
        elif frame.words or (word not in _BEFORE_COMMAND and _ASSIGNMENT.match(word) is None):
            frame.words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        self._frame.words = []
        self._frame.redirects = False


def _reads_name(program: str, words: Sequence[str]) -> bool:
    """Whether the next word may be a variable's name for bash, which runs code in its index."""
    if program in {"test", "["}:
        return bool(words) and (words[-1] in {"-v", "-R"} or "\0" in words[-1])
    return program == "printf" and all(each.startswith("-") for each in words)


def _is_code_of_shell(words: Sequence[str]) -> bool:
    """Whether the next word may be an option of a shell, its script or its code."""
    names = [each.rpartition("/")[2] for each in words]
    if "su" in names:
        return True
    for at, name in enumerate(names):
        if name in _SHELLS:
            operand, has_code = _operand(words[at + 1 :])
            if operand is None:
                return True
            if has_code:  # what follows are parameters
                return False
    return False


def _operand(words: Sequence[str]) -> tuple[str | None, bool]:
    """Return the script or code among the words behind a shell, and whether it is code."""
    has_code, rest = False, iter(words)
    for word in rest:
        if word == "--":
            return next(rest, None), has_code
        if not word.startswith(("-", "+")):
            return word, has_code
        has_code = has_code or _CODE_OPTION.fullmatch(word) is not None
        if _VALUE_OPTION.fullmatch(word):
            next(rest, None)
    return None, has_code
