"""CEL, the expressions of Kubernetes: compiled against typed variables, run over JSON values, errors as values.

    program = compile_expression("self.replicas <= self.most", {"self": types.struct([...])})
    outcome = program.run({"self": {"replicas": 3, "most": 5}})     # True, or a CelError

The library is imported when the first expression is compiled; `Unavailable` says that it is not there. Functions of
one's own are given as `functions.Function`; `environment.kept` makes a quantity, an address or a version of Python's
a value that expressions know as theirs.
"""

from podwire.protocols.cel import types
from podwire.protocols.cel.errors import CelError, CompileError, Unavailable
from podwire.protocols.cel.program import Program, Values, compile_expression

__all__ = ["CelError", "CompileError", "Program", "Unavailable", "Values", "compile_expression", "types"]
