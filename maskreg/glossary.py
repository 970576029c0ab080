"""The vocabulary of maskreg: one meaning a word. ``docs/glossary.md`` shows it together with the figures' definitions.

Figures are defined in :mod:`maskreg.analysis.glossary`, which also looks words up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OWN = "maskreg"
"""Source of what maskreg defines itself."""


@dataclass(frozen=True)
class Entry:
    """One word and its only meaning.

    Attributes:
        name: the word, spelled as in JSON where it is a key.
        definition: sentences; the first one stands alone as the help text of an option.
        source: who defines it so.
        aliases: other spellings, titles of tables and JSON keys that mean the same.
        family: names that begin with this one, or with an alias, mean the same: ``energy_top`` covers
            ``energy_top_16``.
    """

    name: str
    definition: str
    source: str = OWN
    aliases: tuple[str, ...] = ()
    family: bool = False

    @property
    def brief(self) -> str:
        """The first sentence."""
        return self.definition.partition(". ")[0].removesuffix(".") + "."


def by_name(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    """Entries by their name."""
    return {entry.name: entry for entry in entries}


CHECKPOINTS = (
    Entry("checkpoint", "The weights of a model at rest: named tensors in files of some format."),
    Entry("source", "The checkpoint that a run started from. A delta is applied to it."),
    Entry("target", "The checkpoint that a run produced. Applying a delta to its source gives it back."),
    Entry("tensor", "A named array of a checkpoint, with a shape and a dtype."),
    Entry(
        "role",
        "What a tensor does in the model: ffn, attention, embedding, lm_head, norm, router or other. Derived from its "
        "name.",
        aliases=("roles",),
    ),
    Entry(
        "layer",
        "The block of the model that a tensor belongs to, such as 3 or visual.3. Empty for a tensor outside every "
        "layer.",
        aliases=("layers",),
    ),
    Entry(
        "module",
        "Tensors with the same name within their layers, such as mlp.up_proj, over all layers; numbered experts count "
        "as one. A tensor outside every layer is a module of its own.",
        aliases=("modules",),
    ),
    Entry(
        "selection",
        "The tensors that --role and --layers choose, for every command that measures. A role is one of the roles, or "
        "a name within the layer such as q_proj; qkvo stands for q_proj, k_proj, v_proj and o_proj. A matrix that is "
        "stored fused, qkv_proj or gate_up_proj, is split by rows where one of its parts is named: queries have as "
        "many rows as o_proj has columns, keys and values half of the rest each.",
        "qkvo: On the Geometry of On-Policy Distillation, appendix C.3: 144 matrices in 36 layers",
        ("roles and layers", "qkvo"),
    ),
    Entry("coordinate", "One element of a tensor: one weight."),
    Entry("bf16 code", "The 16 bits of a bf16 number: sign, 8 bits of exponent, 7 of mantissa.", aliases=("code",)),
    Entry(
        "class",
        "The codes of one exponent, with mantissa 0 apart: 512 classes. Below a power of two the next bf16 number is "
        "half as far as above it, so those codes flip more easily.",
    ),
    Entry(
        "ULP step",
        "The distance between two neighboring bf16 numbers. Always written out: a step is an optimizer step.",
    ),
    Entry("span", "The elements [start, stop) of a tensor, in C order."),
    Entry("block", "A span that is coded as a unit: at most 2^22 elements."),
    Entry("leaf", "2^18 elements of a tensor in C order, hashed together; the last one may be shorter."),
    Entry(
        "fingerprint",
        "xxh3-128 over the xxh3-128 hashes of a tensor's leaves. Fast, checked leaf by leaf, and no claim about "
        "security.",
    ),
    Entry(
        "identity",
        "A checkpoint's root: sha256 over the name, dtype, shape and fingerprint of every tensor. Two checkpoints with "
        "one identity hold the same weights, whatever their files.",
        aliases=("root",),
    ),
    Entry("tied weights", "Tensors with the same content on both sides. Stored once, with a list of aliases."),
)

UPDATES = (
    Entry("update", "What a run changed: target minus source."),
    Entry(
        "mask",
        "A set of coordinates, one bit each: 1 means moved, and trainable in retraining.",
    ),
    Entry(
        "delta",
        "Every coordinate whose stored bits differ, with the target's bits. Under the rule exact it covers the mask "
        "and the coordinates that changed between +0 and -0.",
    ),
    Entry("extract", "To diff source and target into a mask and a delta, and store both as an artifact."),
    Entry("apply", "To patch a source checkpoint with a delta. The result equals the target bit for bit."),
    Entry(
        "reversible",
        "Of an artifact that also holds the source's bits, so that its target can be turned back into its source.",
    ),
    Entry("overlap", "The coordinates that two masks share, and the figures about them."),
    Entry(
        "compare",
        "The command that measures the overlap of masks against chance and against rounding alone. Its result is a "
        "comparison: every pair's overlap.",
        aliases=("comparison",),
    ),
    Entry("analyze", "The command that measures the geometry of an update: its spectrum, angles and coverage."),
    Entry(
        "baseline",
        "A mask made to compare with, of the density of another one: random, exponent-matched, low-magnitude and "
        "others.",
    ),
    Entry("control", "A mask trained in place of the artifact's own, so that two runs can be compared."),
    Entry("run", "One training run."),
    Entry("step", "One optimizer step of a run."),
    Entry("recipe", "What a training run does: opd, sft, or a function of your own."),
    Entry(
        "lineage recipe",
        "How an artifact was derived from others: a baseline's kind and seed, an operation on masks, or a training "
        "run. Stored in the manifest under the key recipe.",
    ),
)

REGISTRIES = (
    Entry("artifact", "An immutable mask or delta at rest, or an analysis of one. Its digest is its identity."),
    Entry("kind", "What an artifact is: mask, delta (a mask and the target's bits), baseline or analysis."),
    Entry(
        "part",
        "A piece of an artifact that travels as a whole: mask, delta, reverse or analysis. Present or absent as a "
        "unit; absent is not damaged.",
        aliases=("parts", "present"),
    ),
    Entry(
        "link",
        "A delta that stands on another artifact: it applies to that one's target. Links form a chain, from the "
        "source of the first to the target of the last.",
        aliases=("links", "chain"),
    ),
    Entry("squash", "To put one artifact in place of a chain: what extracting its two ends gives."),
    Entry(
        "publish",
        "To extract the weights of a run as a link that stands on what the run published before, and to move its tag.",
    ),
    Entry("manifest", "The document that lists what an artifact holds and where it came from."),
    Entry("object", "One stored file of an artifact."),
    Entry("encoder", "The name of everything that decides an artifact's bytes."),
    Entry("codec", "How the bits of a part are coded."),
    Entry(
        "digest",
        "sha256 of an artifact's canonical manifest, which in turn lists the sha256 of every object.",
        aliases=("digests",),
    ),
    Entry("ref", "A name for an artifact: [project/]name[:tag][@sha256:...].", aliases=("refs",)),
    Entry("project", "The optional first part of a ref: a namespace."),
    Entry("tag", "The part of a ref after the colon. It can be moved to another artifact; the log keeps its history."),
    Entry(
        "immutable",
        "Of a tag that must never point to another artifact again. Removing it is allowed; then only the same artifact "
        "can come back.",
    ),
    Entry("ref log", "The history of every tag: an entry for each change, which is never replaced.", aliases=("log",)),
    Entry(
        "entry",
        "One change of a tag. Entries are numbered from 1, and each holds the id of the one before it.",
        aliases=("entries",),
    ),
    Entry(
        "entry id",
        "sha256 of an entry's content, which is also its seal. It fixes the entry and everything before it.",
        aliases=("id",),
    ),
    Entry("seal", "sha256 of a document's own content, stored in it, so that damage shows where no manifest lists it."),
    Entry(
        "memory",
        "What the local registry remembers of a remote: its identity, and the latest entry that was seen of each tag.",
        aliases=("seen", "rollback"),
    ),
    Entry(
        "project key",
        "What signs every change of a project's tags (ed25519): a writer to the store without its private "
        "part cannot set a tag that readers accept.",
        aliases=("signed", "signature", "signatures", "unsigned"),
    ),
    Entry(
        "vouch",
        "What a project's key does for the latest entry of a tag: it signed that, or found it when the key began.",
        aliases=("vouches",),
    ),
    Entry(
        "pin",
        "To remember the key of a project, and to refuse another one that this key did not sign.",
        aliases=("pins", "pinned", "trust"),
    ),
    Entry(
        "statement of freshness",
        "Signed and dated: how a project's tags stood. When it is too old, readers refuse the project, so an attacker "
        "cannot show an old state for ever.",
        aliases=("fresh", "freshness", "refresh"),
    ),
    Entry("listing", "The keys that a store says it holds. It is stale when it lacks an object that can be read."),
    Entry(
        "card",
        "What people say about an artifact: family, method, license, description, metadata. Belongs to the ref, so "
        "editing it changes no digest.",
    ),
    Entry("store", "Where objects and refs live: a folder, or a bucket and prefix."),
    Entry("catalog", "An index over a store, in SQLite or PostgreSQL. It can be rebuilt from the store."),
    Entry("registry", "A store and its catalog."),
    Entry("local registry", "The registry on this machine, which every command works in."),
    Entry("remote", "A registry elsewhere, known by a name."),
    Entry("measurement", "A recorded number about an artifact, often against another artifact."),
    Entry("workspace", "The use cases behind the commands: the local registry, its remotes and known sources."),
    Entry(
        "garbage collection",
        "Deleting artifacts that no tag points to, and what interrupted work left.",
        aliases=("gc", "collection"),
    ),
    Entry(
        "marker",
        "An object that says that a garbage collection decides about an artifact. The artifact gets no name until the "
        "marker is gone.",
        aliases=("markers",),
    ),
    Entry(
        "back reference",
        "An object under an artifact's digest that says which entry names it, so that garbage collection notices when "
        "a listing lacks a tag.",
        aliases=("back references",),
    ),
    Entry("lineage", "The artifacts that an artifact was derived from.", aliases=("parents",)),
)

GENERAL = by_name((*CHECKPOINTS, *UPDATES, *REGISTRIES))
"""Every word that is no figure, by name."""
