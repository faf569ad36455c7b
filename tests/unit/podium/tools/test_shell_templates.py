"""Templates of commands against a real shell: whatever an argument is, the program sees exactly that (S2.47)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.tools.files.shell_template import shell_script
from podium.tools.files.template import TemplateError, read_template

SHOW = "show"
"""A program that prints its arguments, each with a NUL behind it."""

VALUES = st.one_of(
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40),
    st.text(st.sampled_from("'\"\\$`(){};&|<>\n\t *?~#!=-a1"), max_size=25),
    st.sampled_from(
        [
            "'; touch PWNED; echo '",
            '"; touch PWNED; echo "',
            "$(touch PWNED)",
            "`touch PWNED`",
            "${_arg1}",
            "a\n touch PWNED",
            "\\",
            "-n",
            "~",
            "*",
            "${args.a}",
            "${env.SECRET}",
            "x'\"'\"'y",
        ]
    ),
)


@pytest.fixture(scope="module")
def bin_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    program = directory / SHOW
    program.write_text("#!/bin/sh\nfor each; do printf '%s\\000' \"$each\"; done\n")
    program.chmod(0o755)
    return directory


def _seen(template: str, bin_: Path, **values: str) -> list[str]:
    script = shell_script(read_template(template, ("a", "b"), {}))
    given_ = [values[name] for name in script.arguments]
    ran = subprocess.run(
        ["/bin/sh", "-c", script.text, "sh", *given_],
        capture_output=True,
        cwd=bin_,
        env={"PATH": f"{bin_}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SECRET": "s"},
        check=True,
        timeout=60,
    )
    return ran.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("show ${args.a}", "{a}"),
        ("show '${args.a}'", "{a}"),
        ('show "${args.a}"', "{a}"),
        ("show 'Say: ${args.a}!'", "Say: {a}!"),
        ('show "Say: ${args.a}!"', "Say: {a}!"),
        ("show --name=${args.a}", "--name={a}"),
        ('show "it\'s ${args.a}"', "it's {a}"),
        ("show 'x'\"y\"${args.a}'z'", "xy{a}z"),
        ('X=${args.a} && show "$X"', "{a}"),
        ('X="${args.a}"; show "$X"', "{a}"),
        ("# don't ${args.b}\nshow ${args.a}", "{a}"),
        ("if true; then show ${args.a}; fi", "{a}"),
        ("f() { show ${args.a}; }; f other", "{a}"),
        ("set -- x y; show ${args.a}", "{a}"),
        ("(cd / && show ${args.a})", "{a}"),
        ("show ${args.a} 2>&1", "{a}"),
        ("printf '' | show ${args.a} | cat", "{a}"),
        ("show \\\n  ${args.a}", "{a}"),
        ("sh -c 'show \"$1\"' sh ${args.a}", "{a}"),
        ("sh -ec 'show \"$1\"' sh ${args.a}", "{a}"),
        ("env X=1 show ${args.a}", "{a}"),
        ('command -p env -i PATH="$PATH" show ${args.a}', "{a}"),
        ("[ ${args.a} = ${args.a} ] && show ${args.a} 2>/dev/null", "{a}"),
        ('show "$(printf "%s." ${args.a})"', "{a}."),
        ("show \"$(printf '%s.' '${args.a}')\"", "{a}."),
    ],
)
@settings(max_examples=10, deadline=None)
@given(value=VALUES)
def test_s2_47_a_program_sees_exactly_the_argument(bin_: Path, template: str, expected: str, value: str) -> None:
    assert _seen(template, bin_, a=value, b="'\"`") == [expected.replace("{a}", value)]
    assert not (bin_ / "PWNED").exists()


@settings(max_examples=10, deadline=None)
@given(first=VALUES, second=VALUES)
def test_s2_47_arguments_do_not_reach_each_other(bin_: Path, first: str, second: str) -> None:
    template = "show ${args.a} '${args.b}' \"${args.a}${args.b}\" x${args.b}'y'"
    assert _seen(template, bin_, a=first, b=second) == [first, second, first + second, f"x{second}y"]


TEXTS = st.lists(
    st.sampled_from(
        ["'", '"', " ", "a", "\\", "$", "#", "\n", ";", "(", ")", "|", "&", "$(", "`", "<", ">", "x=", "show "]
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(
    before=TEXTS,
    after=TEXTS,
    value=st.sampled_from(
        ["$(touch PWNED)", "'; touch PWNED; '", '"; touch PWNED; "', "`touch PWNED`", "; touch PWNED"]
    ),
)
def test_no_template_that_is_accepted_lets_a_value_run(
    bin_: Path, before: list[str], after: list[str], value: str
) -> None:
    template = f"show {''.join(before)}${{args.a}}{''.join(after)}"
    try:
        script = shell_script(read_template(template, ("a",), {}))
    except TemplateError:
        return
    subprocess.run(
        ["/bin/sh", "-c", script.text, "sh", value],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=bin_,
        env={"PATH": f"{bin_}:/usr/bin:/bin"},
        check=False,
        timeout=60,
    )
    assert not (bin_ / "PWNED").exists()


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("${args.a} --version", "stands where the name of a command does"),
        ("true; '${args.a}'", "stands where the name of a command does"),
        ("# note\n${args.a}", "stands where the name of a command does"),
        ("eval ${args.a}", "eval would read"),
        ("command eval 'x ${args.a}'", "eval would read"),
        ("export ${args.a}", "export would read"),
        ("sh -c 'echo ${args.a}'", "would be read as code"),
        ('/bin/bash -ec "echo ${args.a}"', "would be read as code"),
        ("sh -ce ${args.a}", "would be read as code"),
        ("sh -c -- ${args.a}", "would be read as code"),
        ("sh -c -e ${args.a}", "would be read as code"),
        ("sh -c -o pipefail ${args.a}", "would be read as code"),
        ("sh -oc errexit ${args.a}", "would be read as code"),
        ("timeout 5 /bin/dash -c ${args.a}", "would be read as code"),
        ("bash ${args.a} ${args.b}", "would be read as code"),
        ("su user -c ${args.a}", "would be read as code"),
        ("command -p eval ${args.a}", "eval would read"),
        ("command -- eval ${args.a}", "eval would read"),
        ("time { eval ${args.a}; }", "eval would read"),
        ("2>/dev/null eval ${args.a}", "eval would read"),
        (">|x eval ${args.a}", "eval would read"),
        ("for each do eval ${args.a}; done", "eval would read"),
        ("function f { eval ${args.a}; }; f", "function would read"),
        ("env ${args.a}", "stands where the name of a command does"),
        ("/usr/bin/env -i X=1 ${args.a}", "stands where the name of a command does"),
        ("env -S ${args.a}", "has no option -S of env"),
        ("exec -a name ${args.a}", "has no option -a of exec"),
        ("time -p ${args.a}", "stands where the name of a command does"),
        ("test -v ${args.a}", "as a name"),
        ("[ ${args.a} ${args.b} ]", "as a name"),
        ("printf -v ${args.a} x", "as a name"),
        ("printf ${args.a} x", "as a name"),
        ("echo $[${args.a}+1]", "no arithmetic"),
        ('echo "$[${args.a}+1]"', "no arithmetic"),
        ("echo `date ${args.a}`", "no backquotes"),
        ("cat <<EOF\n${args.a}\nEOF", "no here-documents"),
        ("echo $((1 + ${args.a}))", "no arithmetic"),
        ("echo ${X:-${args.a}}", "as $NAME or ${NAME} only"),
        ("echo \\${args.a}", "a backslash stands before"),
        ("echo $${args.a}", "a $ stands before"),
        ("echo $'x' ${args.a}", "has no $'…'"),
        ("echo 'x ${args.a}", "are not closed"),
        ("echo x) ${args.a}", "closed that was not opened"),
        ("case x in x) echo ${args.a};; esac", "has no case"),
        ("echo ${args.c}", "is none of the parameters, which are a, b"),
        ("echo ${args.}", "names nothing"),
        ("echo ${env.NOPE} ${args.a}", "there is no variable NOPE"),
    ],
)
def test_a_template_whose_values_could_be_more_is_refused_with_the_place(template: str, told: str) -> None:
    with pytest.raises(TemplateError) as raised:
        shell_script(read_template(template, ("a", "b"), {}))
    assert told in str(raised.value)
    assert template[raised.value.offset :].startswith("${")


def test_a_template_without_arguments_is_any_script() -> None:
    text = "cat <<EOF\n`date` $((1 + 1))\nEOF"
    assert shell_script(read_template(text, (), {})).text == text


def test_a_variable_is_put_in_when_the_template_is_read_and_no_argument_names_it() -> None:
    script = shell_script(read_template("curl ${env.HOST} ${args.a}", ("a",), {"HOST": "example.org"}))
    assert script.text.endswith('curl example.org "${_arg1}"')
