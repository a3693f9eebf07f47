"""Which arguments of a public function or class its docstring does not explain."""

import ast
import inspect
import re
import textwrap
from itertools import pairwise

_ARGUMENT = re.compile(r"^ {4,8}\*{0,2}(\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:", re.M)


def undocumented(thing):
    """Names of the parameters without a line under ``Args:``, and of fields without that and without a docstring."""
    if isinstance(thing, type):
        if issubclass(thing, BaseException):
            return []
        documented = arguments_in(inspect.getdoc(thing)) | fields_explained(thing)
        documented |= arguments_in(inspect.getdoc(thing.__init__)) if "__init__" in vars(thing) else set()
    else:
        documented = arguments_in(inspect.getdoc(thing))
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in parameters if name != "self" and name not in documented]


def arguments_in(text):
    """The names that the section ``Args:`` of a docstring explains."""
    match = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", (text or "") + "\n", re.M)
    if match is None:
        return set()
    return {name.strip(" *") for names in _ARGUMENT.findall(match[1]) for name in names.split(",")}


def fields_explained(cls):
    """Fields of a dataclass or protocol with a docstring below them, in the class or in those it extends."""
    names = set()
    for base in cls.__mro__[:-1]:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body
        for field, after in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                names.add(field.target.id)
    return names
