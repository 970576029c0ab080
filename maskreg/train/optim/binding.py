"""How an optimizer's parameters find their names, and by those their masks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch._guards import CompileContext
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from maskreg.errors import UsageError
from maskreg.live.masks import parameter_masks
from maskreg.live.naming import bare
from maskreg.mask.packed import Mask
from maskreg.train.optim.parameter import MaskedParameter, refuse_fewer, refuse_foreign


class AwaitsModel(Protocol):
    """What waits for its model."""

    param_groups: list[dict[str, Any]]

    def awaits_model(self) -> bool:
        """Whether a model is of any use now."""

    def meet(self, model: torch.nn.Module) -> None:
        """Called with the outermost module that has all parameters, before its first forward pass."""


class _ForwardHook:
    """The global forward pre-hook of all optimizers that wait; registered while there are any.

    ``torch.compile`` must neither trace what the hook does, which inspects memory that traced tensors do not have, nor
    break a graph where the hook is called. The outermost module of a compiled model calls its hooks outside the graph,
    and there the optimizer meets it. So the hook is disabled for the compiler, and nothing takes its place in graphs::

        model.compile(fullgraph=True); model(x)
            hook(model)             runs as it is: the optimizer meets its model
            graph of forward        calls hook(layer) for each layer: left out
    """

    def __init__(self) -> None:
        self._waiting: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handle: RemovableHandle | None = None
        self._function: Callable[[torch.nn.Module, Any], None] | None = None

    def add(self, optimizer: AwaitsModel) -> None:
        self._waiting.add(optimizer)
        # A WeakSet drops what has died, and tells nothing of it.
        weakref.finalize(optimizer, self.sweep)
        if self._handle is None:
            self._function = self._function or self._hidden()
            self._handle = register_module_forward_pre_hook(self._function)

    def discard(self, optimizer: AwaitsModel) -> None:
        self._waiting.discard(optimizer)
        self.sweep()

    def sweep(self) -> None:
        """Remove the hook if nothing waits.

        Not amid a compilation, where garbage collection can call this: guards on the hook are made after the trace, and
        fail with a KeyError if it has gone. The next forward pass removes it then.
        """
        # Its length can still count the optimizer that has just died.
        idle = next(iter(self._waiting), None) is None
        if idle and self._handle is not None and CompileContext.current_compile_id() is None:
            self._handle.remove()
            self._handle = None

    def _hidden(self) -> Callable[[torch.nn.Module, Any], None]:
        """The hook as the compiler sees it; made late, because it imports the compiler."""

        def before_forward(module: torch.nn.Module, args: Any) -> None:
            self._introduce(module)

        hook: Callable[[torch.nn.Module, Any], None] = torch.compiler.disable(before_forward)  # type: ignore[no-untyped-call]
        if hasattr(torch.compiler, "substitute_in_graph"):  # absent in PyTorch 2.4, where the hook breaks graphs

            @torch.compiler.substitute_in_graph(hook)
            def in_graph(module: torch.nn.Module, args: Any) -> None:
                return None

        return hook

    def _introduce(self, module: torch.nn.Module) -> None:
        awaiting = [optimizer for optimizer in self._waiting if optimizer.awaits_model()]
        ids = {id(parameter) for parameter in module.parameters()} if awaiting else set()
        for optimizer in awaiting:
            if all(id(parameter) in ids for _, parameter in in_order(optimizer.param_groups)):
                optimizer.meet(module)
                self._waiting.discard(optimizer)
        self.sweep()


_HOOK = _ForwardHook()


def await_forward(optimizer: AwaitsModel) -> None:
    """Introduce an optimizer to the first model with all of its parameters that runs.

    An optimizer made of ``model.parameters()``, as verl and Trainer make it, knows no names. But the model has to run
    before the first step, and then a global forward pre-hook sees it::

        for each module about to run:           # the hook is called for submodules too
            if it has every parameter:          # the outermost module runs first, so it is the whole model
                optimizer.meet(module)          # and waits no more

    Other models, such as teachers, are skipped. While one waits, ``torch.compile(model)`` warns about global hooks,
    though this one does no harm.
    """
    _HOOK.add(optimizer)


def await_no_more(optimizer: AwaitsModel) -> None:
    """Introduce an optimizer to no model any more."""
    _HOOK.discard(optimizer)


Groups = list[dict[str, Any]]


def in_order(groups: Groups) -> list[tuple[dict[str, Any], torch.Tensor]]:
    """Every parameter with its group, in the order in which saved state numbers them."""
    return [(group, parameter) for group in groups for parameter in group["params"]]


def own_names(groups: Groups) -> dict[str, torch.Tensor]:
    """Parameters by the names that the optimizer was given with them."""
    named: dict[str, torch.Tensor] = {}
    for group in groups:
        names = group.get("param_names")
        if names is None:
            raise UsageError(
                "the optimizer's parameters have no names, and no model with all of them has run yet,"
                " so their masks cannot be found",
                hint="give it model.named_parameters(), or call optimizer.bind(model)",
            )
        refuse_fewer(len(names), len(group["params"]))
        named.update(zip(names, group["params"], strict=True))
    return named


def bind_parameters(
    groups: Groups, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Mask
) -> list[MaskedParameter]:
    """Every parameter of an optimizer with its mask, in the order of the groups.

    A parameter that was sharded after the optimizer was made is replaced in its group by the shards of that name. The
    names given with the parameters count too, and before a model's: that can be a part of the caller's model, such as
    where the loss is a method that calls it.
    """
    model = named if isinstance(named, torch.nn.Module) else None
    if isinstance(named, torch.nn.Module):
        named = dict(named.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}
    _adopt_shards(groups, named, names)
    parameters = in_order(groups)
    for _, parameter in parameters:
        refuse_foreign(names.get(id(parameter), "a parameter"), parameter)
        if id(parameter) not in names:
            raise UsageError(
                "the optimizer trains parameters that the model does not have",
                hint="give it the parameters of this model, after it was sharded",
            )
    given = own_names(groups) if model is not None and all("param_names" in group for group in groups) else {}
    masks = parameter_masks({names[id(p)]: p for _, p in parameters}, mask, model, given)
    return [
        MaskedParameter.of(name, p, group, tensor_mask)
        for (group, p), (name, tensor_mask) in zip(parameters, masks, strict=True)
    ]


def _adopt_shards(groups: Groups, named: Mapping[str, torch.Tensor], names: Mapping[int, str]) -> None:
    by_name = {bare(name): parameter for name, parameter in named.items()}
    for group in groups:
        given = group.get("param_names")
        if given is None or len(given) != len(group["params"]):
            continue
        for number, (name, old) in enumerate(zip(given, group["params"], strict=True)):
            new = by_name.get(bare(name))
            if new is None or id(old) in names or new.shape != old.shape:
                continue
            if hasattr(new, "to_local") and not hasattr(old, "to_local"):
                group["params"][number] = new
