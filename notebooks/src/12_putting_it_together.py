# %% [markdown]
# # 12 Putting it together
#
# Ten notebooks built parts: a shared encoder, many orthogonal heads, pruning, a small attention for every task, a sampler. Here they stand
# in one model. You will count it on paper, find the one place where its parts pull against each other, switch each off in turn, hand in
# what it predicts, and read what all recorded runs of this repository say.
#
# | | |
# |---|---|
# | time | fast: 2 min on two CPU cores · colab: about 40 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 4 GB |
# | read first | [04 Pruning heads](04_pruning_heads.ipynb), [10 Annealed sampling](10_annealed_sampling.ipynb), [11 Projected attention layers](11_pals.ipynb) |
# | papers | Malkiel and Wolf 2021 (MML), section 3 · Stickland and Murray 2019 (BERT and PALs), sections 3 and 4.1 · the CS224N default project |

# %% [markdown]
# ## You will be able to
#
# - count every number of a multi-task model, and say which of them are left when it is deployed,
# - say how probabilities of tasks, sums over heads and clipping share out the pull on what is shared,
# - show that a part that is switched off changes nothing, to the last bit,
# - run an ablation, and say what its intervals speak of and what they do not,
# - hand in predictions that a grader takes, and read a forest of claims.
#
# ![A sampler draws the task of the next batch, here quora. The batch goes through the layers of one shared encoder; beside every layer
# stands a small attention for each task, of which only quora's is used. On top, many heads for sst and for quora, some crossed out, are
# averaged; sts has one head.](images/12_together.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the course's files; None: what the profile says
pairs = None  # "packed", or "separate" as in the course's starter code; None: packed, but separate on the fast profile (section 6 says why)
systems = None  # None: the first five of section 5; or some of its six, such as ["no PALs"]; "everything" and "nothing" are always there

# %%
try:
    import mmlkit
except ImportError:  # on Colab: install the library from its one address
    get_ipython().run_line_magic(
        "pip", 'install -q "mmlkit[notebooks,minilm] @ git+https://github.com/mmlkit/mmlkit"'
    )
    import mmlkit
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlkit import checks, plots
from mmlkit.plots import sliders
from mmlkit.profiles import get_profile
from mmlkit.runtime import describe, fastest_precision, pick_device

# %%
size, device, about = get_profile(profile), pick_device(), describe()
source, pairs = source or size.source, pairs or ("separate" if profile == "fast" else "packed")
precision = fastest_precision(device) if size.precision == "auto" else size.precision
print(
    f"mmlkit {mmlkit.__version__}, torch {about['versions']['torch']} on {about['device']} in {precision}"
)
print(f"weights {size.model}, sst, quora and sts from {source}, pairs {pairs}")

# %% [markdown]
# ## 1 Everything, counted
#
# Three tasks of the CS224N project: the sentiment of a sentence (sst, five labels), whether two questions ask the same (quora, two labels),
# how alike two sentences are (sts, a score). The parts, and what a model has without each of them:
#
# | part | built in | switched off |
# |---|---|---|
# | one encoder for all tasks | [01](01_minbert.ipynb) | – |
# | many orthogonal heads for a task with labels, the weak pruned | [03](03_multiverse_loss.ipynb), [04](04_pruning_heads.ipynb) | one linear head |
# | a PAL for each task beside every layer | [11](11_pals.ipynb) | nothing beside the layers |
# | a sampler that says whose batch is next | [10](10_annealed_sampling.ipynb) | every batch once, shuffled |
#
# (The library would take many heads for a score as well, each with its own squared error, as in the paper. We give sts one, so that both
# kinds stand side by side.)
#
# On paper, for BERT-base: $D = 768$ wide, PALs $S = 204$ wide, $m = D$ heads of $C$ labels each.
#
# | part | numbers |
# |---|---|
# | encoder | 109,482,240 |
# | three PALs | $3 \cdot 1{,}819{,}836 = 5{,}459{,}508$ |
# | heads of sst | $768 \cdot (768 \cdot 5 + 5) = 2{,}952{,}960$ |
# | heads of quora | $768 \cdot (768 \cdot 2 + 2) = 1{,}181{,}184$ |
# | head of sts | $768 + 1 = 769$ |
#
# **Predict before you run.** By how much is the trained model larger than BERT? And the deployed one, in which each task's heads are
# averaged into one?

# %%
from mmlkit.bert import BertConfig, BertModel
from mmlkit.heads import LinearHead, MultiverseHead
from mmlkit.training import MultitaskModel
from mmlkit.pals import add_pals

TASKS = ("sst", "quora", "sts")


def counts(model):
    """How many numbers each part of a model holds."""
    number = lambda module: sum(parameter.numel() for parameter in module.parameters())
    encoder, pals = number(model.encoder), number(model.encoder.pals) if model.encoder.pals else 0
    heads = {f"head{'s' * (name != 'sts')} of {name}": number(model.heads[name]) for name in TASKS}
    return {"encoder": encoder - pals, "PALs": pals, **heads}


# %%
by_hand = {
    "encoder": 109_482_240,
    "PALs": 3 * 1_819_836,
    "heads of sst": 768 * (768 * 5 + 5),
    "heads of quora": 768 * (768 * 2 + 2),
    "head of sts": 769,
}
folded = {**by_hand, "heads of sst": 768 * 5 + 5, "heads of quora": 768 * 2 + 2}
with torch.device("meta"):  # shapes without memory
    encoder, sts = add_pals(BertModel(BertConfig.base()), list(TASKS)), LinearHead(768, 1)
    many = {
        "sst": MultiverseHead(768, 5, num_heads=768),
        "quora": MultiverseHead(768, 2, num_heads=768),
        "sts": sts,
    }
    one = {"sst": LinearHead(768, 5), "quora": LinearHead(768, 2), "sts": sts}
table = pd.DataFrame(
    {
        "trained": by_hand,
        "counted": counts(MultitaskModel(encoder, many)),
        "deployed": folded,
        "counted again": counts(MultitaskModel(encoder, one)),
    }
)
assert (table["trained"] == table["counted"]).all() and (
    table["deployed"] == table["counted again"]
).all()
table.loc["all"] = table.sum()
print(
    {
        name: f"{table.loc['all', name] / by_hand['encoder']:.4f} times BERT-base"
        for name in ("trained", "deployed")
    }
)
table.map("{:,}".format)

# %% [markdown]
# Nine in a hundred more in training, five in a hundred in use. The heads vanish when they are folded. The PALs do not: something that
# attends cannot be folded into something that does not.
#
# ## 2 Where the parts meet
#
# A task's PAL and heads are its own: no step of another task moves them (notebook 11). So there is just one place where the parts can pull
# against each other, the shared encoder. Three things have a say there: how often a task is drawn, how large the gradient of its loss is,
# and what clipping leaves of it.
#
# With $A_t$ heads the loss of a task is a *sum* over heads (MML, Eq. 3). Let the heads of a task agree on what they want. Then the expected
# gradient of a step on what is shared is
#
# $$\sum_t p_t \sum_{j=1}^{A_t} \nabla L_{t,j} = \sum_t p_t\, A_t\, \nabla L_t$$
#
# | symbol | name | value |
# |---|---|---|
# | $p_t$ | probability of task $t$, `p` | from the sampler |
# | $A_t$ | active heads of task $t$, `heads` | one, or up to $D$ |
# | $L_{t,j}$, $L_t$ | loss of head $j$; of any of them, if they agree | number |
# | $g$ | gradient of a step, over everything that it moves | vector |
# | – | longest $g$ that is let through, `clip` | 1 in `fit`; a longer one is shortened to it |
#
# ### On paper
#
# One shared number $w$ again, as in notebook 10. Task A wants it at 1, task B at −1:
#
# $$L_A = (w - 1)^2 \qquad L_B = (w + 1)^2 \qquad p_A = \tfrac14 \qquad p_B = \tfrac34$$
#
# With one head each, $w$ settles where $\frac14 \cdot 2(w - 1) + \frac34 \cdot 2(w + 1) = 0$, at $w = -\frac12$. **Predict before you
# run.** Where does it settle if A has three heads? And if every gradient is clipped to length 1, with one head, and with three?


# %%
def settle(heads, clip=None, p=(0.25, 0.75), rate=0.01):
    """Where w comes to rest under the expected step; A has this many heads, B has one."""
    w = 0.0
    for _ in range(3000):
        g = [heads * 2 * (w - 1), 2 * (w + 1)]
        if clip:
            g = [one * min(1, clip / max(abs(one), 1e-12)) for one in g]
        w -= rate * (p[0] * g[0] + p[1] * g[1])
    return w


ways = {"not clipped": None, "clipped to 1": 1.0}
rest = pd.DataFrame(
    {
        f"{heads} head{'s' * (heads > 1)} for A": {
            way: settle(heads, clip) for way, clip in ways.items()
        }
        for heads in (1, 3)
    }
)
assert np.allclose(rest, [[-1 / 2, 0], [-5 / 6, -5 / 6]])
rest.rename_axis("w settles at").round(4)

# %% [markdown]
# Not clipped, three heads at a quarter of the steps weigh as much as one head at three quarters: $p_t A_t$ is what counts, and $w$ stops
# halfway.
#
# Clipped, every step of A has length 1, with three heads as with one. B, which is drawn more often, gets $w$ so near to its goal that its
# own gradient falls below 1: $\frac34 \cdot 2(w + 1) = \frac14$ gives $w = -\frac56$. So clipping takes the number of heads out of the
# balance again; what it leaves in is $p_t$.
#
# The slider sets the exponent of the sampler and the number of heads of sst and quora, with the sizes of the course's sets. Left: how often
# each task is drawn. Right: its share of the pull, $p_t A_t / \sum_s p_s A_s$, if nothing were clipped.


# %%
def draw_pull(alpha, heads):
    """Shares of the steps and of the pull, for the course's three sets."""
    weights = {"quora": 141_500**alpha, "sst": 8544**alpha, "sts": 6040**alpha}
    p = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    pull = {name: p[name] * (1 if name == "sts" else heads) for name in p}
    with plots.style():
        fig, axes = plt.subplots(1, 2, figsize=(9, 2), layout="constrained", sharey=True)
        plots.bars(p, xlabel="share of the steps", title=f"α = {alpha}", ax=axes[0])
        shares = {name: one / sum(pull.values()) for name, one in pull.items()}
        title = f"{heads} head{'s' * (heads > 1)} for quora and sst"
        plots.bars(shares, xlabel="share of the pull", title=title, ax=axes[1])
        for ax in axes:
            ax.set_xlim(0, 1.12)  # the same axes for all choices
        axes[0].invert_yaxis()  # two charts share the axis, and each has turned it round


sliders(
    draw_pull,
    start={"alpha": 0.2, "heads": 5},
    alpha=[0, 0.2, 0.5, 0.8, 1.0],
    heads=[1, 5, 20, 100, 768],
)

# %% [markdown]
# *Two times three bars. At α = 0.2 sts has a quarter of the steps; with five heads for each of the other two, its share of the pull is far
# smaller. Where a live front end exists, sliders set α and the number of heads.*
#
# ## 3 Build it
#
# The data first. The fast profile takes small slices of the mini data, four to one in size, or there would be nothing to anneal.

# %%
from dataclasses import replace
from pathlib import Path

from mmlkit.data import load_task
from mmlkit.bert import load_pretrained

sizes_of = {
    "fast": (dict(sst=64, quora=144, sts=48), 64, 8, 2, None),
    "colab": (dict(sst=4000, quora=12_000, sts=3000), 500, 16, 3, None),
}
train_rows, dev_rows, batch_size, epochs, steps_per_epoch = sizes_of.get(
    profile, ({}, None, 8, size.epochs, 3000)
)
head_lr = size.frozen_lr if profile == "fast" else size.head_lr  # few steps: fast heads
pretrained, tokenizer = load_pretrained(size.model)
dev = {name: load_task(name, source, limit=dev_rows, seed=seed).dev for name in TASKS}
data = {
    name: replace(load_task(name, source, limit=train_rows.get(name), seed=seed), dev=dev[name])
    for name in TASKS
}
batches = {name: -(-len(one.train) // batch_size) for name, one in data.items()}
print(
    {name: f"{len(one.train):,} + {len(one.dev):,} rows" for name, one in data.items()},
    "batches per epoch:",
    batches,
)

# %%
from mmlkit.heads import PairHead, build_head
from mmlkit.runtime import seeded


def new_head(name, D, multiverse, every=10**9, pairs=pairs):
    """(head, hooks) of a task: many orthogonal heads and their pruner for labels, else one linear head."""
    task = data[name].task
    pairs = pairs if task.is_pair else "packed"
    with seeded(seed):
        if multiverse and task.labels:
            return build_head(
                "mml", D, task.num_labels, pooling=size.pooling, pairs=pairs, every=every
            )
        return (PairHead if pairs == "separate" else LinearHead)(
            D, task.num_labels, pooling=size.pooling
        ), []


# %%
import copy


def new_model(multiverse=True, pals=True, every=None, **options):
    """(model, hooks): the pretrained encoder, PALs, a head for each task. every: {task: steps between two prunings}."""
    encoder, D = copy.deepcopy(pretrained), pretrained.config.hidden_size
    if pals:
        add_pals(encoder, list(TASKS), size=12 * round(204 * D / 768 / 12), seed=seed)
    made = {
        name: new_head(name, D, multiverse, (every or {}).get(name, 10**9), **options)
        for name in TASKS
    }
    model = MultitaskModel(encoder, {name: head for name, (head, _) in made.items()}, tokenizer).to(
        device
    )
    return model, [hook for _, hooks in made.values() for hook in hooks]


pd.DataFrame(
    {
        name: counts(new_model(part, part)[0])
        for name, part in (("everything", True), ("nothing", False))
    }
).map("{:,}".format)

# %% [markdown]
# MiniLM is half as wide as BERT-base and half as deep, so its parts are smaller. (Where pairs are separate, a head of quora or sts reads
# four vectors instead of one: that of each sentence, their distance, and their product, feature by feature.)
#
# **Checkpoint: off is off.** Before anything is compared, the comparison has to be fair. Take the plain model, and beside it one with every
# part there but idle: PALs whose $V^D$ is 0 and stays 0, and multiverse heads that are one head. **Predict before you run.** How far apart
# are their scores?


# %%
def idle_model(plain):
    """Everything there, and switched off, with the plain model's weights."""
    model, _ = new_model(multiverse=False, pals=True)
    for name in ("sst", "quora"):
        (weight, bias), how = plain.heads[name].parameters(), plain.heads[name].pairs  # [C,D], [C]
        model.heads[name] = MultiverseHead(
            pretrained.config.hidden_size, len(bias), num_heads=1, pooling=size.pooling, pairs=how
        )
        model.heads[name].load_state_dict(
            {"weight": weight[None], "bias": bias[None], "active": torch.tensor([True])}
        )
    return model.to(device)


# %%
from mmlkit.data import collate, encode

coded = {
    name: encode(tokenizer, one.train, max_length=size.max_length, pairs=pairs)
    for name, one in data.items()
}
some = {name: collate(one, range(8)).to(device) for name, one in coded.items()}
plain, _ = new_model(multiverse=False, pals=False)
idle, equal = idle_model(plain).eval(), {}
for name in TASKS:
    with torch.no_grad():
        here, there = plain.eval()(some[name]), idle(some[name])
    equal[name] = torch.equal(here, there)
assert all(equal.values()) or device.type != "cpu"  # a GPU may add in another order
print("equal to the last bit:", equal)

# %% [markdown]
# The same numbers, not just nearly. And in training? The loss of a multiverse head is added up in another order, so with one head it may
# differ from a linear head's in the last bit. The PALs have no such excuse: as long as $V^D$ is held at 0, training must lead to the same
# encoder. And with $\alpha$ fixed, which is annealing over one epoch, the sampler must draw what the proportional one draws.

# %%
from mmlkit.training import TaskSampler, make_optimizer, train_step


def three_steps(pals, idle=False):
    """The shared weights as one vector after an update on each task, dropout off."""
    model = new_model(multiverse=False, pals=pals)[0].eval()
    if idle:
        model.encoder.pals.requires_grad_(False)  # V^D starts at 0 and stays there
    optimizer = make_optimizer(model, lr=size.lr, head_lr=head_lr, pal_lr=size.head_lr)
    for name in TASKS:
        train_step(model, some[name], optimizer)
    return torch.cat(
        [
            part.detach().flatten()
            for name, part in model.encoder.named_parameters()
            if not name.startswith("pals.")
        ]
    )


# %%
without, with_idle, awake = (
    three_steps(pals=False),
    three_steps(pals=True, idle=True),
    three_steps(pals=True),
)
start = torch.cat([part.detach().flatten() for part in pretrained.parameters()])
assert torch.equal(without, with_idle) or device.type != "cpu"
assert not torch.equal(without, awake)
assert TaskSampler("annealed", sizes=batches).order(1) == TaskSampler(
    "proportional", sizes=batches
).order(1)
print(
    f"{len(start):,} shared numbers; moved in three steps: {(without != start.to(device)).sum():,};",
    f"different with idle PALs: {(without != with_idle).sum():,}, with PALs that learn: {(without != awake).sum():,}",
)

# %% [markdown]
# Idle parts change nothing, to the last bit: whatever an ablation shows from here on is the part's own doing, or chance. (Dropout is off in
# these steps. With it, a PAL draws masks of its own, and later draws differ: the same method, other random numbers.)
#
# ## 4 Who pulls how hard
#
# Section 2 had heads that agree. Real heads start from random numbers and agree on nothing: then gradients add up like steps of a random
# walk, to about $\sqrt{A}$ times one head's, not $A$ times. Let us measure: one batch of each task, its gradient on the shared encoder, and
# what is left of that when the whole gradient, heads included, is clipped to length 1.


# %%
def pull(model, name):
    """Length of one batch's gradient on the shared encoder, and what clipping at 1 leaves of it."""
    model.eval().zero_grad()
    (model.loss(some[name]).total + (model.heads[name].penalty() or 0)).backward()
    grown = {
        key: part.grad.norm() for key, part in model.named_parameters() if part.grad is not None
    }
    shared = [g for key, g in grown.items() if key.startswith("encoder.") and "pals." not in key]
    whole, shared = (torch.stack(list(parts)).norm().item() for parts in (grown.values(), shared))
    return {"as it is": shared, "clipped": shared * min(1, 1 / whole)}


# %%
models = {"one head": plain, "many heads": new_model(pals=False)[0]}
pulls = pd.concat(
    {
        kind: pd.DataFrame({name: pull(model, name) for name in TASKS}).T
        for kind, model in models.items()
    },
    axis=1,
)
times, m = (
    (pulls["many heads", "as it is"] / pulls["one head", "as it is"]).round(1),
    pretrained.config.hidden_size,
)
print(f"{m} heads pull this many times as hard as one: {times.to_dict()}; √{m} = {m**0.5:.1f}")
apart = pulls.max() / pulls.min()
if profile == "fast":  # tried with MiniLM alone
    assert (apart[:, "clipped"] < apart[:, "as it is"]).all()
pulls.T.assign(**{"hardest / weakest": apart}).T.round(2)

# %% [markdown]
# The two columns *as it is* show that a sum over heads is not the only thing that decides who pulls. With one head for each task, sts pulls
# hardest: its loss is the squared error of a score up to 5, and a fresh head answers about 0. Hundreds of heads lift the other two, and how
# the balance comes out then is anybody's guess, since it depends on their number, and changes as heads begin to agree or are pruned.
#
# *Clipped*, the tasks are nearly alike in both models: a gradient longer than 1 comes out with length 1, whatever made it long. That is why
# one may put heads by the hundred onto one task of several at all, and why `clip=1.0` is no detail here. (Adam evens out scales as well,
# but it keeps one running size of the gradient for each shared number, and the task that pulls hardest sets it for all.)
#
# ## 5 Each part switched off
#
# Systems from the same weights, with the same rates and number of steps. Each task's batches come in the same order in all of them; what
# the sampler decides is whose turn it is. *Everything* and *nothing* are the two ends; between them one part is off at a time. (A sixth,
# *in blocks*, takes one task after another, as the report's baseline does; name it in `systems` to run it.)

# %%
SYSTEMS = {
    "everything": dict(),
    "one head": dict(multiverse=False),
    "no PALs": dict(pals=False),
    "merged": dict(schedule="merged"),
    "nothing": dict(multiverse=False, pals=False, schedule="merged"),
    "in blocks": dict(schedule="sequential"),
}
systems = list(dict.fromkeys(["everything", *(systems or list(SYSTEMS)[:5]), "nothing"]))
full = {"multiverse": True, "pals": True, "schedule": "annealed"}
switches = pd.DataFrame({name: {**full, **SYSTEMS[name]} for name in systems}).T
switches.replace({True: "on", False: "off"}).rename(columns={"pals": "PALs", "schedule": "sampler"})

# %%
from collections import Counter

from mmlkit.training import fit, predict_scores


def run(multiverse=True, pals=True, schedule="annealed", **options):
    """(model, pruners, steps of each task) after training; the weights are those of the best epoch."""
    sampler = TaskSampler(
        schedule, sizes=batches, epochs=epochs, steps_per_epoch=steps_per_epoch, seed=seed
    )
    steps = Counter(name for epoch in range(1, epochs + 1) for name in sampler.order(epoch))
    model, hooks = new_model(
        multiverse, pals, every={name: max(1, steps[name] // 3) for name in TASKS}, **options
    )
    optimizer = make_optimizer(model, lr=size.lr, head_lr=head_lr, pal_lr=size.head_lr)
    fit(
        model,
        data,
        sampler=sampler,
        optimizer=optimizer,
        hooks=hooks,
        epochs=epochs,
        batch_size=batch_size,
        max_length=size.max_length,
        precision=precision,
        seed=seed,
    )
    return model, hooks, steps


def answers(model):
    """The model's scores of every task's dev rows."""
    return {
        task: predict_scores(model, dev[task], max_length=size.max_length, precision=precision)
        for task in TASKS
    }


# %%
scores, steps, whole = {}, {}, None
for name in systems:
    model, hooks, steps[name] = run(**SYSTEMS[name])
    scores[name], whole = answers(model), whole or (model, hooks)
pd.DataFrame(steps).T[list(TASKS)].rename_axis("steps of each task")

# %% [markdown]
# `overall` is the course's score: the mean of two accuracies and of the correlation brought to 0..1. For its uncertainty we draw the dev
# rows again and again, with replacement, *the same rows for every system*: what two systems get wrong together cancels in their difference.

# %%
from mmlkit.studies import constant_accuracies, overall_score


def parts_of(name, rows=None):
    """The system's two accuracies and its correlation, on some dev rows of each task."""
    found = []
    for task, split in dev.items():
        chosen = np.arange(len(split)) if rows is None else rows[task]
        labels, given = split.labels[chosen], scores[name][task][chosen]
        r = None if split.task.labels else np.nan_to_num(np.corrcoef(given[:, 0], labels)[0, 1])
        found.append((given.argmax(1) == labels).mean() if r is None else r)
    return found


draws = np.random.default_rng(seed)
rows = [
    {task: draws.integers(len(split), size=len(split)) for task, split in dev.items()}
    for _ in range(300)
]
redrawn = pd.DataFrame(
    {name: [overall_score(*parts_of(name, drawn)) for drawn in rows] for name in systems}
)
table = pd.DataFrame(
    {name: [*parts_of(name), overall_score(*parts_of(name))] for name in systems},
    index=[*TASKS, "overall"],
).T
table.assign(**{"± 1 standard error": redrawn.std()}).round(3)

# %%
constant = overall_score(
    *(max(constant_accuracies(dev[name]).values()) for name in ("sst", "quora")), float("nan")
)
print(
    f"who always gives the most frequent answer: {constant:.3f}; the mean of these systems: {table['overall'].mean():.3f}"
)
assert table["overall"].mean() > constant, "what was trained should beat a constant answer"

# %%
from mmlkit.studies import Comparison, outcome


def difference(name):
    """Everything minus this system, in points of 100, with the interval over dev rows."""
    low, high = (100 * (redrawn["everything"] - redrawn[name])).quantile([0.025, 0.975])
    gain = 100 * (table.loc["everything", "overall"] - table.loc[name, "overall"])
    return Comparison(gain, low, high, 0.95, sum(map(len, dev.values())))


live = [("everything does better than", name, difference(name)) for name in systems[1:]]
plots.forest(
    live,
    xlabel="difference of the overall scores, in points",
    title=f"one seed, {live[0][2].pairs} dev rows",
)
plt.show()

# %% [markdown]
# *A line for each of the other systems: a mark at the overall score of everything minus its own, and the interval over dev rows; a vertical
# line at zero. A mark on the right: everything together scored higher. At the right edge: difference, interval, number of rows.*

# %%
apart = [name for _, name, one in live if outcome(one) != "cannot be told"]
print(
    f"{len(apart)} of {len(live)} differences lie beyond what the choice of dev rows explains"
    + (f": {', '.join(apart)}" if apart else "")
)
width = np.mean([one.high - one.low for *_, one in live]) / 2
needed = np.mean([one.pairs for *_, one in live]) * width**2
print(
    f"half an interval is about {width:.1f} points wide; for one point it would take some {round(needed, -2):,.0f} dev rows, and seeds besides"
)

# %% [markdown]
# What do these intervals speak of? Of *these models on other rows*. An interval that leaves out zero says: this trained model is better
# than that one (and of many such intervals one now and then says it by luck). It does not say that the part is good or bad: the next seed
# trains other models. And one that includes zero says that a few hundred rows are too few, not that the part does nothing. For statements
# about methods one needs seeds, and those are in section 9.
#
# What one run does show is that the parts work together: a pruned multiverse model with PALs and an annealed sampler trains in one call of
# `fit`, and the table says how far above constant answers it comes out.
#
# ## 6 Packed, or apart?
#
# The course's starter code encodes the two sentences of a pair separately, and the report followed it; BERT reads both at once. What do the
# two ways cost? Count tokens first. **Predict before you run.** Which way has more of them?

# %%
both = {
    how: encode(tokenizer, data["quora"].train, max_length=size.max_length, pairs=how)
    for how in ("packed", "separate")
}
parts = {
    "packed": both["packed"].input_ids,
    "separate": both["separate"].input_ids + both["separate"].second.input_ids,
}
tokens = {how: sum(map(len, ids)) for how, ids in parts.items()}
assert tokens["separate"] == tokens["packed"] + len(data["quora"].train) or both["packed"].truncated
print(
    {
        how: f"{number / len(data['quora'].train):.1f} tokens a pair"
        for how, number in tokens.items()
    }
)

# %% [markdown]
# One more, apart: `[CLS] a [SEP] b [SEP]` against `[CLS] a [SEP]` and `[CLS] b [SEP]`. In attention every token looks at every other of its
# input, and two halves have half as many such pairs; on the other hand there are two runs through the encoder, each with smaller matrices.
# So it has to be measured: the same rows by turns, and the ratio within each turn, so that a busy moment hits both.

# %%
import time

from mmlkit.data import plan

chosen = plan(both["packed"].lengths, 16, seed=seed)[:6]
timed = {how: new_model(multiverse=False, pals=False, pairs=how)[0].train() for how in both}
optimizers = {
    how: make_optimizer(model, lr=size.lr, head_lr=head_lr) for how, model in timed.items()
}
scaler = torch.amp.GradScaler() if precision == "fp16" else None


def seconds(how, rows):
    """How long a training step takes."""
    batch, started = collate(both[how], rows).to(device), time.perf_counter()
    train_step(timed[how], batch, optimizers[how], precision=precision, scaler=scaler).total.item()
    return time.perf_counter() - started


turns = pd.DataFrame([{how: seconds(how, rows) for how in both} for rows in chosen]).iloc[
    1:
]  # the first one warms up
ratio = turns["separate"] / turns["packed"]
print(
    f"median step of {len(chosen[0])} pairs:",
    ", ".join(f"{how} {1000 * turns[how].median():.0f} ms" for how in both),
)
print(
    f"separate / packed: median {ratio.median():.2f}, from {ratio.min():.2f} to {ratio.max():.2f} in {len(ratio)} turns"
)

# %% [markdown]
# That is a ratio for short questions, for this batch size and machine. What is learnt may matter more, so look at that as well: the model
# with *nothing*, trained once more on the same rows, in the other way.

# %%
del models, timed, optimizers  # memory
other = "packed" if pairs == "separate" else "separate"
scores[other] = answers(run(**SYSTEMS["nothing"], pairs=other)[0])
ways = pd.DataFrame(
    {pairs: dict(zip(TASKS, parts_of("nothing"))), other: dict(zip(TASKS, parts_of(other)))}
).T.loc[["packed", "separate"]]
errors = np.std([parts_of(other, drawn) for drawn in rows], axis=0)
ahead = {task: ways[task].idxmax() for task in ("quora", "sts")}
print(
    f"ahead in this run: {ahead}; one standard error is about {errors[1]:.2f} of an accuracy, {errors[2]:.2f} of the correlation"
)
ways.round(3)

# %% [markdown]
# Packed, every layer can hold a word of one sentence against a word of the other; apart, two finished vectors are compared. With enough
# data the first should win, and the report's similarity score, far below what others reach with packed pairs, is a hint that it does. But
# MiniLM was trained to make vectors of single sentences, and a few dozen steps teach it little else. That is why the fast profile reads
# pairs apart, and the others pack them. (`mmlkit reproduce cs224n-project` compares the two on the course's own files.)
#
# ## 7 Pruned and folded
#
# What has become of the heads in the model with everything?

# %%
model, pruners = whole
pruned = {
    name: next(hook for hook in pruners if hook.head is model.heads[name])
    for name in ("sst", "quora")
}
plots.head_counts(
    {name: (pruner.head.num_heads, pruner.events) for name, pruner in pruned.items()},
    last_step=max(steps["everything"][name] for name in pruned),
    title="the model with everything",
)
plt.show()
print(
    "heads in the weights of the best epoch:",
    {name: f"{int(one.head.active.sum())} of {one.head.num_heads}" for name, one in pruned.items()},
)

# %% [markdown]
# *A staircase for each of two tasks: active heads against the task's own training steps, from as many as the encoder has features
# downwards; a dot at every check.*
#
# How many are left moves with the seed and the bandwidth (notebook 04), and with a few dozen steps not much can be said of a head. For the
# deployed model it does not matter how many there are: the mean of linear heads is one linear head.

# %%
plain = model.collapse()
after = answers(plain)
assert all(
    (after[task].argmax(1) == scores["everything"][task].argmax(1)).all()
    for task in ("sst", "quora")
)
largest = max(np.abs(after[task] - scores["everything"][task]).max() for task in TASKS)
assert largest < 1e-4
print(
    f"largest difference of {sum(one.size for one in after.values())} scores: {largest:.1e}; every label is the same"
)
pd.DataFrame({"trained": counts(model), "deployed": counts(plain)}).map("{:,}".format)

# %%
from mmlkit.training import load_model, save_model

folder = Path(output_dir) / "together"
save_model(plain, folder, metadata={"seed": seed, "profile": profile})
again = load_model(folder).to(device)  # where the other model is: devices round differently
few = dev["sst"].take(range(16))
assert np.allclose(predict_scores(again, few), predict_scores(plain, few), atol=1e-5)
print(
    {
        file.name: f"{file.stat().st_size / 2**10:,.0f} kB"
        for file in sorted(folder.iterdir())
        if file.suffix == ".safetensors"
    }
)

# %% [markdown]
# Three files: the encoder, which opens with transformers as any BERT does; the PALs, which one may leave out or hand on apart from it; and
# the folded heads, a few kilobytes.
#
# ## 8 Handed in
#
# The course wants six files, a *dev* and a *test* one for each task, in a format of its own, misspelling included. `write_submission` reads
# the course's files and writes them. Without these files, we bring our slices into the course's form: tab-separated, with an unnamed first
# column.


# %%
def course_files(folder):
    """Our slices as the course's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in data.items():
        column = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}[name]
        test = one.test or one.dev
        for part, split in (
            ("train", one.train),
            ("dev", one.dev),
            ("test", test.take(range(min(dev_rows or len(test), len(test))))),
        ):
            columns = {
                "id": [f"{name}{row}" for row in split.ids],
                **dict(zip(one.task.text_columns, zip(*split.texts))),
            }
            labels = (
                {}
                if part == "test"
                else {column: split.labels.astype(float if name == "quora" else split.labels.dtype)}
            )
            pd.DataFrame({**columns, **labels}).to_csv(folder / one.task.files[part], sep="\t")
    return folder


# %%
from mmlkit.studies import check_submission, write_submission

course = Path(source) if Path(source).is_dir() else course_files(Path(output_dir) / "course")
handed = Path(output_dir) / "predictions"
found = write_submission(again, course, handed, max_length=size.max_length)
print(
    {name: round(score, 3) for name, score in found.items()},
    *sorted(file.name for file in handed.iterdir()),
    sep="\n",
)

# %%
print(
    *(
        repr(line)
        for line in (handed / "sts-dev-output.csv").read_text(encoding="utf-8").split("\n")[:4]
    ),
    sep="\n",
)
problems = check_submission(handed, course)
print(f"{len(problems)} problems", *problems, sep="\n")
assert not problems or course == Path(source)  # of the course's own files, one may be missing

# %% [markdown]
# `Similiary`, a space before and after each comma, and one at the end of every line: whoever "mends" any of it gets no points. (The same
# from the command line: `mmlkit submit --model FOLDER --source FOLDER`.)
#
# Would the check notice? Break a copy in five ways: a header whose spelling is mended, a last row that is lost, a comma without its space,
# labels written as whole numbers, and a file that is not there. (A line that cannot be read is told twice, since its id then has no row.)

# %%
import shutil

broken = Path(shutil.copytree(handed, Path(output_dir) / "broken", dirs_exist_ok=True))


def spoil(file, change):
    """Changes the text of one file."""
    if (broken / file).is_file():
        text = (broken / file).read_text(encoding="utf-8")
        (broken / file).write_text(change(text), encoding="utf-8", newline="")


spoil("sts-dev-output.csv", lambda text: text.replace("Similiary", "Similarity"))
spoil(
    "sst-dev-output.csv", lambda text: "\n".join([*text.split("\n")[:-2], ""])
)  # the last row is lost
spoil("sst-test-output.csv", lambda text: text.replace(" , ", ", ", 1))
spoil(
    "para-dev-output.csv",
    lambda text: text.replace("0.0 \n", "0 \n", 1).replace("1.0 \n", "1 \n", 1),
)
(broken / "para-test-output.csv").unlink(missing_ok=True)
pd.DataFrame(check_submission(broken, course)).fillna({"row": 0}).astype({"row": int}).replace(
    {"row": {0: ""}}
)

# %% [markdown]
# ## 9 All that was recorded
#
# Live runs show that things work. What is *better* takes seeds, and those runs lie in `results/`, made by `mmlkit reproduce NAME`, one file
# for each. What follows reads whatever is there, and no number in it is typed in.

# %%
from mmlkit.batch import compare_claim, headline, judge, load_experiment, load_results, long_frame

try:
    recorded = load_results(["../results"])
except FileNotFoundError as error:
    recorded = {}
    print(error)


def titled(name, kind, edition):
    """An experiment with its size, and the edition of the mini data that its runs have read."""
    return f"{name} ({kind}{f', mini data of edition {edition}' if edition else ''})"


batch = {key: (load_experiment(*key[:2]), results) for key, results in recorded.items()}
frames = {key: long_frame(experiment, results) for key, (experiment, results) in batch.items()}
hours = {
    key: round(sum(one["minutes"] for one in results) / 60, 1)
    for key, (_, results) in batch.items()
}
pd.DataFrame(
    [
        {
            "experiment": titled(*key),
            "runs": len(results),
            "seeds": frames[key]["seed"].nunique(),
            "hours": hours[key],
            "on": results[0]["device"],
        }
        for key, (_, results) in batch.items()
    ]
)


# %%
def short_table(key):
    """The experiment's headline: ours as mean and standard deviation over seeds, beside the published number."""
    table = headline(batch[key][0], frames[key])
    by, digits = table.columns[0], 2 if table["ours"].abs().max() > 1.5 else 3
    words = table[["published", "ours", "sd"]].map(
        lambda value: "" if np.isnan(value) else f"{value:.{digits}f}"
    )
    rows = pd.MultiIndex.from_product([[titled(*key)], table[by]])
    return words.assign(seeds=table["seeds"], number=by.split(": ")[1]).set_index(rows)


pd.concat([pd.DataFrame(), *map(short_table, batch)])

# %% [markdown]
# Published numbers are of larger encoders and other data: compare how rows stand to each other within a column, not the columns.
#
# Now each experiment's claims, as the papers put them, judged on our runs. A claim *holds* when its whole interval lies above zero, *does
# not hold* when none of it does, and else cannot be told; with fewer than six seeds it never can.

# %%
import textwrap

for key, (experiment, _) in batch.items():
    print(f"{titled(*key)}: {experiment.title}")
    for claim in experiment.claims:
        said = judge(claim, frames[key], experiment.published.get("scale", 1))
        print(textwrap.fill(said, 130, initial_indent="  - ", subsequent_indent="    "))

# %% [markdown]
# Beside the batches there are single measurements, one file each.

# %%
import json


def line(name, one):
    """What a single measurement says, in a line."""
    if name.startswith("pruning_"):
        left = f"{one['heads_at_end']} left after {one['steps']} steps, {one['heads_kept']} in the best epoch"
        return f"{one['rows']:,} rows, {one['num_heads']} heads: {left}"
    if name == "multiverse_cost":
        return ", ".join(
            f"{step['overhead_percent']:.1f} % of a training step in {step['precision']}"
            for step in one["training_step"]
        )
    if name == "mini_baselines":
        table = pd.DataFrame(
            [{**run, "score": run.get("pearson", run.get("accuracy"))} for run in one["runs"]]
        )
        ways = table.pivot_table(index="task", columns="mode", values="score").reindex(
            columns=["finetune", "separate"]
        )
        both = ways.dropna(subset=["finetune", "separate"])
        better = (both["separate"] > both["finetune"]).sum()
        pairs = (
            f"; {better} of {len(both)} pair tasks have the higher mean separate, not packed"
            if len(both)
            else ""
        )
        return f"{len(table)} runs of {len(ways)} tasks{pairs}"
    if name == "meanshift_splits":
        return "one normal distribution is split in " + ", ".join(
            f"{row['share_split']:.0%} ({row['heads']} heads)" for row in one["rows"][:3]
        )
    if name == "speed":
        steps = [part for part in one["comparisons"] if part["comparison"] == "step"]
        return "a training step is " + ", ".join(
            f"{step['over_best']['median']:.2f} times as fast as the Trainer's best on {step['task']} in {step['precision']}"
            for step in steps
        )
    return one.get("what", "no description")


singles = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted(Path("../results").glob("*.json"))
}
for name, one in singles.items():
    print(f"{name}: {line(name, one)}")

# %% [markdown]
# ### All claims on one axis
#
# The closing figure: every claim that has runs of both sides, in points of 100. The slider sets how sure one wants to be. **Predict before
# you move it.** What happens to the marks at 80 %, and at 99 %?


# %%
def claims_at(level):
    """(group, name, comparison, at_least) of every claim with runs of both sides; everything in points of 100."""
    rows = []
    for key, (experiment, _) in batch.items():
        for claim in experiment.claims:
            one = compare_claim(claim, frames[key], 100, level)
            least = 100 / experiment.published.get("scale", 1) * claim.get("at_least", 0.0)
            rows += [(titled(*key), claim["says"], one, least)] if one is not None else []
    return rows


def draw_claims(level):
    """The forest of all recorded claims."""
    if rows := claims_at(level):
        short = [(group, textwrap.fill(says, 58), *rest) for group, says, *rest in rows]
        title = f"all recorded claims, intervals of {level:.0%}"
        plots.forest(short, limit=limit, title=title)


levels = [0.8, 0.95, 0.99]
drawn = [[one for _, _, one, _ in claims_at(level)] for level in levels]
limit = max(map(plots.axis_limit, drawn)) if drawn[0] else None  # the same axis for all
sliders(draw_claims, start={"level": 0.95}, level=levels)

# %% [markdown]
# *A forest: one line for each recorded claim, in groups by experiment, with a mark at the difference, its interval, and a vertical line at
# zero. Filled circles on the right hold, filled squares on the left do not, open diamonds cannot be told; an arrow says that an interval
# goes on beyond the axis. At the right the numbers: difference, interval, pairs of runs. (Empty without recorded runs.)*
#
# Read it with the cautions of notebook [05](05_cross_dataset.ipynb): the intervals are over seeds, on these data, with this encoder. And
# many claims at 95 % are many chances: of twenty that are all empty, one or so will leave out zero.

# %%
every_claim = claims_at(0.95)
for word in ("holds", "does not hold", "cannot be told"):
    names = [
        f"  - {says} [{group}]"
        for group, says, one, at_least in every_claim
        if outcome(one, at_least=at_least) == word
    ]
    print(f"{word}: {len(names)}", *names, sep="\n")
missing = sum(len(experiment.claims) for experiment, _ in batch.values()) - len(every_claim)
print(f"no runs of both sides: {missing}")

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: the overall score
#
# ● ○ ○ · 5 minutes. The course's score. Mind the model that says the same of every row: its
# correlation is `nan`, and the course counts that as 0.


# %%
def my_overall(sst, quora, sts):
    """Two accuracies from 0 to 1, and Pearson's r from -1 to 1, or nan. Returns the overall score."""
    ...


_ = checks.check_overall(my_overall)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Bring $r$ from −1..1 to 0..1, then take the mean of three. `math.isnan` tells nan.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
#
# r = 0.0 if math.isnan(sts) else sts
# return (sst + quora + (r + 1) / 2) / 3
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the share of the pull
#
# ● ● ○ · 10 minutes. The right panel of section 2 as a function: every task's share of the pull, if
# its heads agree and nothing is clipped.


# %%
def my_pull(probabilities, heads):
    """{task: p} and {task: number of heads}, not always in one order. Returns {task: share}; the shares add up to 1."""
    ...


_ = checks.check_pull(my_pull)

# %% [markdown]
# <details><summary>Hint</summary>
#
# First $p_t A_t$ for each task, then divide by their sum.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# pulls = {task: p * heads[task] for task, p in probabilities.items()}
# return {task: one / sum(pulls.values()) for task, one in pulls.items()}
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: the sign test
#
# ● ● ● · 15 minutes. Why six seeds? If a part did nothing, each seed's difference would be a coin:
# above zero or below. How probable is it that $n$ coins fall at least so much to one side, to
# *either* side, as these differences did? With six of six it is the first time less than 5 %.


# %%
def my_sign_test(differences):
    """One number per seed, none of them 0. Returns a probability, at most 1."""
    ...


_ = checks.check_sign_test(my_sign_test)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.comb(n, i)` ways to have $i$ of $n$ on one side, each with probability $2^{-n}$. Start at
# the larger side, and take the sum twice.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
#
# n, above = len(differences), sum(one > 0 for one in differences)
# most = max(above, n - above)
# return min(1.0, 2 * sum(math.comb(n, i) for i in range(most, n + 1)) / 2**n)
# ```
#
# </details>
#
# ## If it goes wrong
#
# - *One task learns and the others stand still*: look at who pulls how hard (section 4). With `clip=None` a loss summed over hundreds of
#   heads drowns the others; `MultiverseHead(reduction="mean")` is the other way out, with $\lambda$ divided by the number of heads.
# - *"The sampler is for ... epochs"* from `fit`: give `TaskSampler` the same `epochs`, and sizes for exactly the tasks of `data`.
# - *A submission has problems with ids*: predictions were made from other files than the check reads. Hand both the same folder.
#
# ## Takeaways of the whole walkthrough
#
# **What holds**, because it is algebra, and a cell or a test shows it:
#
# - Many linear heads fold into one, so a multiverse model costs nothing in use. PALs stay, at a sixtieth of BERT for each task.
# - A part that is switched off changes nothing. Attention over one vector is no attention. Nothing is forgotten where nothing shared moves.
# - Read as printed, Algorithm 1 never prunes, and several printed improvements do not follow from the numbers beside them.
#
# **What did not hold, or could not be told, in our runs**: that is the list above the exercises. It is computed, so it changes when runs
# are added, and you can add some: `mmlkit reproduce NAME --seeds 6`.
#
# **What nobody has shown**, as far as these papers go:
#
# - That multiverse heads help where several tasks share an encoder. The MML papers train one task at a time.
# - That annealed sampling does better than one task after another *at the same number of steps*. The report compares runs whose numbers of
#   steps differ.
# - That most differences of the printed tables would outlast another seed. Most cells are one run, and the best epoch is chosen on the
#   split that is reported.
#
# Each of them is one file in `experiments/` away. That is what this repository is for.
#
# ## References
#
# Malkiel and Wolf (2021), *Maximal Multiverse Learning for Promoting Cross-Task Generalization of Fine-Tuned Language Models*, EACL.
# Stickland and Murray (2019), *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*, ICML. Liu et al.
# (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding*, ACL. Hu and Xiao, *Multitask BERT*, CS224N default project
# report. Efron and Tibshirani (1993), *An Introduction to the Bootstrap*.
#
# Before: [11 Projected attention layers](11_pals.ipynb). Back to the beginning: [00 Start here](00_start_here.ipynb).
