# %% [markdown]
# # 12 Putting it together
#
# The earlier notebooks built single parts: a shared encoder, many orthogonal heads, pruning, a small attention for every task, and
# a sampler. Here they work in one model. You will count its parameters on paper, and find the one place where the tasks compete.
# Then you switch each part off in turn, hand in the predictions, and read all recorded runs of this repository.
#
# | | |
# |---|---|
# | time | 1½ hours to read and solve (estimated) · fast: 6 min on two CPU cores · colab: about 40 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 4 GB |
# | read first | [04 Pruning heads](04_pruning_heads.ipynb), [10 Annealed sampling](10_annealed_sampling.ipynb), [11 Projected attention layers](11_pals.ipynb); for section 9 also 05, 07 and 09 |
# | papers | Malkiel and Wolf 2021 (MML), section 3 · Stickland and Murray 2019 (BERT and PALs), sections 3 and 4.1 · the CS224N default project |

# %% [markdown]
# ## You will be able to
#
# - count every parameter of a multi-task model, and say which of them remain when it is deployed,
# - say how task probabilities, sums over heads and clipping divide the updates of the shared encoder,
# - show that a part that is switched off changes nothing, to the last bit,
# - run an ablation, and say what its intervals mean,
# - hand in predictions in the course's format, and read a forest plot of claims.
#
# ![Diagram of the whole model. A sampler draws the task of the next batch, here quora. The batch goes through the layers of one shared
# encoder. A small attention for each task stands beside every layer, and only quora's is used. On top, the many heads of sst and of
# quora are averaged, and some of them are crossed out. The task sts has one head.](images/12_together.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the course's files; None: what the profile says
pairs = None  # "packed" or "separate"; None: separate on the fast profile, else packed (section 6)
systems = None  # None: the first five of section 5; or some of its six, such as ["no PALs"]

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.2.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("12", profile, output_dir)

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlkit.runtime import fastest_precision, pick_device

# %%
size, device, machine = get_profile(profile), pick_device(), describe()
source, pairs = source or size.source, pairs or ("separate" if profile == "fast" else "packed")
precision = fastest_precision(device) if size.precision == "auto" else size.precision
torch_version = machine["versions"]["torch"]
print(f"mmlkit {mmlkit.__version__}, torch {torch_version} on {machine['device']} in {precision}")
print(f"weights {size.model}; sst, quora and sts from {source}; pairs {pairs}")

# %% [markdown]
# ## 1 All parameters, counted
#
# The CS224N project has three tasks. In sst, a sentence gets one of five sentiment labels. In quora, two questions are duplicates
# or not. In sts, two sentences get a similarity score. These are the parts of the model, and what stands in their place when they
# are switched off:
#
# | part | built in | switched off |
# |---|---|---|
# | one encoder for all tasks | [01](01_minbert.ipynb) | – |
# | many orthogonal heads for a task with labels, with pruning | [03](03_multiverse_loss.ipynb), [04](04_pruning_heads.ipynb) | one linear head |
# | a PAL for each task beside every layer | [11](11_pals.ipynb) | nothing beside the layers |
# | a sampler that draws the task of the next batch | [10](10_annealed_sampling.ipynb) | every batch once, shuffled (*merged*) |
#
# The library also allows many heads for a score. We give sts one head, so that the model has both kinds.
#
# Count on paper for BERT-base: hidden size $D = 768$, PALs of size $S = 204$, and $m = D$ heads with $C$ labels each.
#
# | part | parameters |
# |---|---|
# | encoder | 109,482,240 |
# | three PALs | $3 \cdot 1{,}819{,}836 = 5{,}459{,}508$ |
# | heads of sst | $768 \cdot (768 \cdot 5 + 5) = 2{,}952{,}960$ |
# | heads of quora | $768 \cdot (768 \cdot 2 + 2) = 1{,}181{,}184$ |
# | head of sts | $768 + 1 = 769$ |
#
# **Predict before you run.** How much larger than BERT is the trained model? And the deployed model, where each task's heads are
# averaged into one?

# %%
from mmlkit.bert import BertConfig, BertModel
from mmlkit.heads import LinearHead, MultiverseHead
from mmlkit.pals import add_pals
from mmlkit.training import MultitaskModel

TASKS = ("sst", "quora", "sts")


def counts(model):
    """The number of parameters of each part of a model."""
    number = lambda module: sum(parameter.numel() for parameter in module.parameters())
    encoder, pals = number(model.encoder), number(model.encoder.pals) if model.encoder.pals else 0
    return {"encoder": encoder - pals, "PALs": pals, **{t: number(model.heads[t]) for t in TASKS}}


# %%
by_hand = {"encoder": 109_482_240, "PALs": 3 * 1_819_836, "sst": 768 * (768 * 5 + 5)}
by_hand |= {"quora": 768 * (768 * 2 + 2), "sts": 769}
folded = {**by_hand, "sst": 768 * 5 + 5, "quora": 768 * 2 + 2}
labels = {"sst": 5, "quora": 2}
with torch.device("meta"):  # shapes without memory
    encoder, sts = add_pals(BertModel(BertConfig.base()), list(TASKS)), LinearHead(768, 1)
    many = {name: MultiverseHead(768, C, num_heads=768) for name, C in labels.items()}
    one = {name: LinearHead(768, C) for name, C in labels.items()}
    assert counts(MultitaskModel(encoder, {**many, "sts": sts})) == by_hand
    assert counts(MultitaskModel(encoder, {**one, "sts": sts})) == folded
table = pd.DataFrame({"trained": by_hand, "deployed": folded})
table.loc["all"] = table.sum()

# %% tags=["answer"] jupyter={"outputs_hidden": true}
more = 100 * (table.loc["all"] / by_hand["encoder"] - 1)
print(
    f"Answer: {more['trained']:.1f} % larger in training, {more['deployed']:.1f} % when deployed."
)

# %%
table.map("{:,}".format).rename_axis("parameters, counted and by hand")

# %% [markdown]
# The many heads disappear when they are folded. The PALs remain: attention cannot be folded into a linear layer.
#
# ## 2 Competition in the shared encoder
#
# The PAL and the heads of a task belong to it alone, and no step of another task moves them (notebook 11). So the tasks can compete
# in one place only, the shared encoder. Three things determine the influence of a task there: how often it is drawn, how large the
# gradient of its loss is, and how much of that gradient clipping leaves.
#
# With $A_t$ heads, the loss of a task is a *sum* over heads (MML, Eq. 3). Suppose that all heads of a task have the same gradient.
# Then the expected gradient of a step on the shared parameters is
#
# $$\sum_t p_t \sum_{j=1}^{A_t} \nabla L_{t,j} = \sum_t p_t\, A_t\, \nabla L_t$$
#
# | symbol | name in the code | value |
# |---|---|---|
# | $p_t$ | probability of task $t$, `p` | from the sampler |
# | $A_t$ | active heads of task $t$, `heads` | one, or up to $D$ |
# | $L_{t,j}$, $L_t$ | loss of head $j$; of any head, where they agree | number |
# | $g$ | gradient of a step with respect to all parameters that it moves | vector |
# | – | largest norm of $g$, `clip` | 1 in `fit`; a longer gradient is scaled down to it |
#
# ### On paper
#
# Take one shared parameter $w$, as in notebook 10. Task A has its optimum at 1, task B at −1:
#
# $$L_A = (w - 1)^2 \qquad L_B = (w + 1)^2 \qquad p_A = \tfrac14 \qquad p_B = \tfrac34$$
#
# With one head each, $w$ converges where $\frac14 \cdot 2(w - 1) + \frac34 \cdot 2(w + 1) = 0$, at $w = -\frac12$.
#
# **Predict before you run.** Where does $w$ converge if A has three heads? And with gradients clipped to norm 1, for one head and
# for three?


# %%
def settle(heads, clip=None, p=(0.25, 0.75), rate=0.01):
    """The limit of w under the expected step; A has this many heads, B has one."""
    w = 0.0
    for _ in range(3000):
        g = [heads * 2 * (w - 1), 2 * (w + 1)]
        if clip:
            g = [one * min(1, clip / max(abs(one), 1e-12)) for one in g]
        w -= rate * (p[0] * g[0] + p[1] * g[1])
    return w


clips = {"not clipped": None, "clipped to 1": 1.0}
limits = {f"A: {n}": {way: settle(n, clip) for way, clip in clips.items()} for n in (1, 3)}
limits = pd.DataFrame(limits).rename_axis("w by heads of A")
assert np.allclose(limits, [[-1 / 2, 0], [-5 / 6, -5 / 6]])

# %% tags=["answer"] jupyter={"outputs_hidden": true}
free, clipped = limits.loc["not clipped"], limits.loc["clipped to 1"]
print(
    f"Answer: with three heads {abs(free['A: 3']):.2f}; with clipping {clipped['A: 1']:.2f} for one"
)
print(f"head and {clipped['A: 3']:.2f} for three.")

# %%
limits.round(4)

# %% [markdown]
# Without clipping, the product $p_t A_t$ is equal for both tasks if A has three heads. So $w$ converges to the middle, 0.
#
# With clipping, the gradient of A has norm 1 in every step, for three heads as for one. Task B is drawn more often, and it moves
# $w$ so close to its optimum that its own gradient falls below 1: $\frac34 \cdot 2(w + 1) = \frac14$ gives $w = -\frac56$. So
# clipping removes the number of heads from the balance, as long as the gradient of A is longer than 1.
#
# The sliders set the sampler's exponent and the heads of sst and quora, with the sizes of the course's sets. The right chart shows
# $p_t A_t / \sum_s p_s A_s$, the share of the gradient without clipping, if all $\nabla L_t$ are equally long.


# %%
def draw_pull(alpha, heads):
    """Shares of the steps and of the gradient, for the course's three sets."""
    weights = {"quora": 141_500**alpha, "sst": 8544**alpha, "sts": 6040**alpha}
    p = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    pull = {name: p[name] * (1 if name == "sts" else heads) for name in p}
    shares = {name: one / sum(pull.values()) for name, one in pull.items()}
    charts = {f"α = {alpha}": p, f"heads of quora and sst: {heads}": shares}
    xlabels = ["share of the steps", "share of the gradient"]
    plots.bars_side_by_side(charts, xlabels=xlabels, limit=1.12)


start = {"alpha": 0.2, "heads": 5}
plots.sliders(draw_pull, start=start, alpha=[0, 0.2, 0.5, 0.8, 1.0], heads=[1, 5, 20, 100, 768])

# %% [markdown]
# *At α = 0.2, sts has 25 % of the steps. With five heads for each of the other two tasks, its share of the gradient would be only 6 %.*
#
# ## 3 Build it
#
# First we load the data. The fast profile takes small slices of the mini data. Their sizes differ, because annealing has no effect
# on equal sizes. Some training rows are set aside to choose the best epoch, so that no dev row takes part in that choice.

# %%
from dataclasses import replace

from mmlkit.bert import load_pretrained
from mmlkit.data import load_task

sizes_of = {
    "fast": (dict(sst=40, quora=72, sts=32), 80, 8, 2, None),
    "colab": (dict(sst=4000, quora=12_000, sts=3000), 500, 16, 3, None),
}
train_rows, dev_rows, batch_size, epochs, steps_per_epoch = sizes_of.get(
    profile, ({}, None, 8, size.epochs, 3000)
)
pretrained, tokenizer = load_pretrained(size.model)
dev = {name: load_task(name, source, limit=dev_rows, seed=seed).dev for name in TASKS}

# %%
select_rows, generator = (24 if profile == "fast" else 500), np.random.default_rng(seed)


def with_selection(name):
    """The task's training rows, and as its dev split other training rows, for the best epoch."""
    wanted = train_rows[name] + select_rows if name in train_rows else None
    one = load_task(name, source, limit=wanted, seed=seed)
    order = generator.permutation(len(one.train))
    most = min(select_rows, len(order) // 2)  # of a small set of your own
    return replace(one, train=one.train.take(order[most:]), dev=one.train.take(order[:most]))


# %%
data = {name: with_selection(name) for name in TASKS}
batches = {name: -(-len(one.train) // batch_size) for name, one in data.items()}
for name, one in data.items():
    chosen, judged = len(one.dev), len(dev[name])
    print(f"{name}: {len(one.train):,} rows, {batches[name]} batches per epoch", end="; ")
    print(f"{chosen} rows choose the epoch, {judged} dev rows judge it")
ratio = max(batches.values()) / min(batches.values())
print(f"The largest task has {ratio:.1f} times as many batches as the smallest.")

# %% [markdown]
# The heads come next. Where pairs are separate (a bi-encoder), a head of quora or sts reads four vectors. These are the two
# sentence vectors, their absolute difference, and their product. The head of sts starts at 5 times the cosine, as in notebook 11.

# %%
from mmlcourse.studies import build_head
from mmlkit.heads import PairHead
from mmlkit.runtime import seeded


def new_head(name, D, multiverse, every=10**9, pairs=pairs, at_cosine=True):
    """(head, hooks) of a task: many orthogonal heads with their pruner, or one linear head."""
    task, options = data[name].task, dict(pooling=size.pooling)
    pairs = pairs if task.is_pair else "packed"
    with seeded(seed):
        if multiverse and task.labels:
            return build_head("mml", D, task.num_labels, pairs=pairs, every=every, **options)
        head = (PairHead if pairs == "separate" else LinearHead)(D, task.num_labels, **options)
    if name == "sts" and pairs == "separate" and at_cosine:
        head.dense.weight.data.zero_()
        head.dense.weight.data[:, 3 * D :] = 5 / D  # on u * v: 5 times the cosine
    return head, []


# %%
import copy


def new_model(multiverse=True, pals=True, every=None, **options):
    """(model, hooks): the pretrained encoder, PALs, a head for each task. every: {task: steps}."""
    encoder, D, hooks = copy.deepcopy(pretrained), pretrained.config.hidden_size, []
    if pals:
        add_pals(encoder, list(TASKS), size=12 * round(204 * D / 768 / 12), seed=seed)
    heads, every = {}, every or {}
    for name in TASKS:
        heads[name], added = new_head(name, D, multiverse, every.get(name, 10**9), **options)
        hooks += added
    return MultitaskModel(encoder, heads, tokenizer).to(device), hooks


ends = {"everything": counts(new_model()[0]), "nothing": counts(new_model(False, False)[0])}
pd.DataFrame(ends).map("{:,}".format)

# %% [markdown]
# MiniLM is half as wide and half as deep as BERT-base, so its parts are smaller.
#
# **Checkpoint: off is off.** An ablation is fair only if a part that is switched off has no effect. Take the plain model. Take
# a second one with every part present but idle: PALs whose $V^D$ is 0 and stays 0, and multiverse heads with one head each.
#
# **Predict before you run.** How far apart are the scores of the two models?


# %%
def idle_model(plain):
    """Every part is present and switched off, with the plain model's weights."""
    model, _ = new_model(multiverse=False, pals=True)
    for name in ("sst", "quora"):
        (weight, bias), how = plain.heads[name].parameters(), plain.heads[name].pairs  # [C,D], [C]
        options = dict(num_heads=1, pooling=size.pooling, pairs=how)
        head = MultiverseHead(pretrained.config.hidden_size, len(bias), **options)
        active = torch.tensor([True])
        head.load_state_dict({"weight": weight[None], "bias": bias[None], "active": active})
        model.heads[name] = head
    return model.to(device)


# %%
from mmlkit.data import collate, encode

coded = {
    name: encode(tokenizer, one.train, max_length=size.max_length, pairs=pairs)
    for name, one in data.items()
}
some = {name: collate(one, range(8)).to(device) for name, one in coded.items()}
plain, _ = new_model(multiverse=False, pals=False)
idle = idle_model(plain).eval()
with torch.no_grad():
    apart = max((plain.eval()(some[t]) - idle(some[t])).abs().max().item() for t in TASKS)
assert apart == 0 or device.type != "cpu"  # a GPU may add in another order

# %% tags=["answer"] jupyter={"outputs_hidden": true}
far = f"at most {apart:.0e} apart" if apart else "exactly equal"
print(f"Answer: the scores of all three tasks are {far}.")

# %% [markdown]
# We also test the updates in training. The loss of a multiverse head is summed in another order, so with one head it may differ
# from a linear head's in the last bit. So both models of this test have linear heads. The PALs must not change anything: as long as
# $V^D$ stays 0, training must lead to the same encoder. With one epoch the annealed sampler must also draw the same tasks as the
# proportional one, because its exponent is 1 in the first epoch.

# %%
from mmlkit.training import TaskSampler, make_optimizer, train_step

rate = size.frozen_lr if profile == "fast" else size.head_lr  # few steps: a high head rate
head_lr = dict.fromkeys(TASKS, rate)
sts_lr = {"separate": size.lr, "packed": rate}  # a head that starts at the cosine moves slowly
head_lr["sts"] = sts_lr[pairs]


def three_steps(pals, idle=False):
    """The shared weights as one vector after an update on each task, without dropout."""
    model = new_model(multiverse=False, pals=pals)[0].eval()
    if idle:
        model.encoder.pals.requires_grad_(False)  # V^D starts at 0 and stays there
    optimizer = make_optimizer(model, lr=size.lr, head_lr=head_lr, pal_lr=size.head_lr)
    for name in TASKS:
        train_step(model, some[name], optimizer)
    named = model.encoder.named_parameters()
    return torch.cat([p.detach().flatten() for name, p in named if not name.startswith("pals.")])


# %%
without, with_idle = three_steps(pals=False), three_steps(pals=True, idle=True)
awake = three_steps(pals=True)
assert torch.equal(without, with_idle) or device.type != "cpu"
assert not torch.equal(without, awake)
orders = [TaskSampler(kind, sizes=batches).order(1) for kind in ("annealed", "proportional")]
assert orders[0] == orders[1]
different = {"idle": (without != with_idle).sum(), "trained": (without != awake).sum()}
for kind, number in different.items():
    print(f"{kind} PALs: {number:,} of {len(without):,} shared parameters differ after three steps")

# %% [markdown]
# Idle PALs change nothing, to the last bit. So a difference in an ablation is caused by the part or by chance. Most of the
# parameters that stay equal even with trained PALs are embeddings of words outside the three batches. (Dropout is off in these
# steps. With dropout a PAL draws masks of its own, and later draws differ: the method is the same, the random numbers are not.)
#
# ## 4 Gradient norms of the tasks
#
# Section 2 assumed that heads agree. Real heads start from random weights. As in a random walk, the sum of their gradients has about
# $\sqrt{A}$ times the length of one, instead of $A$ times. We measure the gradient of one batch of each task on the shared encoder, and its
# size after the whole gradient, heads included, is clipped to norm 1. Here the head of sts also starts from random weights, so that all
# tasks have an equal start. Four batches of each task show the spread.


# %%
def pull(model, name, first=0):
    """Norm of one batch's gradient on the shared encoder, as it is and after clipping at 1."""
    model.eval().zero_grad()
    batch = collate(coded[name], range(first, first + 8)).to(device)
    (model.loss(batch).total + (model.heads[name].penalty() or 0)).backward()
    named = model.named_parameters()
    norms = {key: part.grad.norm() for key, part in named if part.grad is not None}
    shared = [g for key, g in norms.items() if key.startswith("encoder.") and "pals." not in key]
    whole, shared = (torch.stack(list(one)).norm().item() for one in (norms.values(), shared))
    return {"as it is": shared, "clipped": shared * min(1, 1 / whole)}


# %%
models = {
    kind: new_model(multiverse=many, pals=False, at_cosine=False)[0]
    for kind, many in {"one head": False, "many heads": True}.items()
}
every_pull = pd.DataFrame(
    {
        (kind, task, first): pull(model, task, first)
        for kind, model in models.items()
        for task in TASKS
        for first in (0, 8, 16, 24)
    }
).T.rename_axis(["heads", "task", "batch"])

# %%
pulls = every_pull.groupby(["heads", "task"], sort=False).mean().unstack("heads")
pulls = pulls.swaplevel(axis=1).sort_index(axis=1, ascending=[False, True]).rename_axis(None)
apart = pulls.max() / pulls.min()
if size.effects:  # tried with MiniLM alone
    assert (apart[:, "clipped"] < apart[:, "as it is"]).all()
pd.concat([pulls, apart.to_frame("largest / smallest").T]).round(2)

# %%
m, lengths = pretrained.config.hidden_size, every_pull["as it is"]
times = (lengths["many heads"] / lengths["one head"]).groupby("task")
print(f"Gradient of {m} heads, relative to one head, over four batches (√{m} = {m**0.5:.1f}):")
for name in ("sst", "quora"):
    one = times.get_group(name)
    print(f"  {name}: mean {one.mean():.1f}, from {one.min():.1f} to {one.max():.1f}")

# %%
spread = every_pull.groupby(["heads", "task"], sort=False)["clipped"].agg(["min", "max"])
spread.round(2).rename_axis(["clipped, four batches", "task"])

# %% [markdown]
# *The last row of the first table has the ratio of the largest gradient to the smallest. Clipping brings the tasks closer.*
#
# The printed factors are close to $\sqrt{384} = 19.6$ and far from 384: at the start, the gradients of the heads on the *encoder* do
# not agree, because each points along the random weights of its head. (The gradients on these weights nearly agree, see notebook 03.)
#
# Without clipping, hundreds of heads enlarge the gradients of sst and quora. Here quora then has the largest gradient instead of sts, and
# the balance depends on the number of heads. Clipping removes this dependence, so `clip=1.0` is an important setting here. (Adam also
# reduces differences of scale. But it keeps one average of squared gradients for each shared parameter, and the task with the largest
# gradient dominates this average.)
#
# ## 5 An ablation
#
# All systems start from the same encoder, and have the same learning rates and the same number of steps. Each task's batches come
# in the same order in all of them. Only the sampler changes the order of the tasks, and the number of steps of each task. The
# system *everything* has all parts, and *nothing* has none of them. In the other systems, one part is switched off at a time. (A
# sixth system, *in blocks*, trains one task after another. Add it to `systems`.)
#
# One seed and small slices make this **a demonstration of the mechanics**: it shows how to compare, and not which part helps.

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
from mmlkit.training import fit

settings = dict(epochs=epochs, batch_size=batch_size, max_length=size.max_length)


# %%
def run(name, multiverse=True, pals=True, schedule="annealed", **options):
    """(model, pruners, steps of each task) of a system after training; the best epoch's weights."""
    plan = dict(epochs=epochs, steps_per_epoch=steps_per_epoch, seed=seed)
    sampler = TaskSampler(schedule, sizes=batches, **plan)
    order = [task for epoch in range(1, epochs + 1) for task in sampler.order(epoch)]
    steps = {task: order.count(task) for task in TASKS}
    every = {task: max(1, number // 3) for task, number in steps.items()}
    model, hooks = new_model(multiverse, pals, every=every, **options)
    head_lrs = {**head_lr, "sts": sts_lr[options.get("pairs", pairs)]}
    optimizer = make_optimizer(model, lr=size.lr, head_lr=head_lrs, pal_lr=size.head_lr)
    same = dict(sampler=sampler, optimizer=optimizer, hooks=hooks, precision=precision, seed=seed)
    kept = size.checkpoints(output_dir, f"12-{name}")
    fit(model, data, **same, **settings, **kept)
    return model, hooks, steps


# %% [markdown]
# **Predict before you run.** Will *everything* score higher than *nothing* after so few steps?

# %%
from mmlkit.training import predict_scores


def answers(model):
    """The model's scores of every task's dev rows."""
    options = dict(max_length=size.max_length, precision=precision)
    return {task: predict_scores(model, dev[task], **options) for task in TASKS}


scores, steps = {}, {}
for name in systems:
    model, hooks, steps[name] = run(name, **SYSTEMS[name])
    scores[name] = answers(model)
    if name == "everything":
        whole = model, hooks
pd.DataFrame(steps).T.rename_axis("steps of each task")

# %%
from mmlcourse.studies import score_table, untrained_scores

scores["untrained"] = untrained_scores(copy.deepcopy(pretrained), tokenizer, dev)
found = score_table(scores, dev, baseline="everything")
columns = {"error": "± error", "difference": "minus everything"}
found.rename(columns=columns).round(3)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
nothing = found.loc["nothing"]
word = "no, it is lower" if nothing["difference"] > 0 else "yes"
told = "more" if nothing["low"] > 0 or nothing["high"] < 0 else "no more"
print(f"Answer: {word}: {found.loc['everything', 'overall']:.3f} and {nothing['overall']:.3f}.")
print(f"The difference is {told} than the choice of dev rows explains.")

# %% [markdown]
# The row *untrained* is the baseline without training: the majority class for sst and quora, and the untrained cosine for sts.
# `overall` is the course's score: the mean of two accuracies and of the correlation scaled to 0..1. Errors and 95 % intervals (low
# to high) come from a bootstrap over dev rows. All systems get *the same rows*, so that common mistakes cancel in a difference.
#
# Other rows chose the best epoch, so this choice does not raise the scores.

# %%
from mmlcourse.studies import Comparison, outcome

rows = sum(map(len, dev.values()))
live = [
    (name, Comparison(*(-100 * one[["difference", "high", "low"]]), 0.95, rows))
    for name, one in found.drop(["everything", "untrained"]).iterrows()
]
title = f"one seed; the last number: {rows} dev rows"
xlabel = "difference of the overall scores, in points"
plots.forest([("everything is better than", *one) for one in live], xlabel=xlabel, title=title)
plt.show()

# %%
told = [f"{name} ({one.difference:+.1f})" for name, one in live if outcome(one) != "cannot be told"]
print("Differences beyond the choice of dev rows:", ", ".join(told) or "none")
width = np.mean([one.high - one.low for _, one in live]) / 2
print(f"Half an interval is about {width:.1f} points. For one point it would take some")
print(f"{round(rows * width**2, -2):,.0f} dev rows, and several seeds besides.")
lead, low, high = -100 * found.loc["untrained", ["difference", "high", "low"]]
print(f"Everything minus untrained: {lead:+.1f} points ({low:+.1f} to {high:+.1f}).")
worse = found.index[found["sts"] < found.loc["untrained", "sts"]]
print("Below the untrained cosine on sts:", ", ".join(worse) or "none")

# %% [markdown]
# *Each line shows everything minus another system, unlike the table. A part visibly helps where an interval lies above zero.*
#
# These intervals describe *these trained models on other rows*. If an interval excludes zero, one trained model is probably better
# than the other. Four intervals are read, and rows written together count as independent, so this is weak evidence. It is no evidence for or
# against the part, because another seed trains other models. If an interval includes zero, 240 rows are too few to decide. Statements about
# methods need several seeds (section 9).
#
# On sst no system is clearly above the majority class (one standard error is about 0.05). On sts all are below the untrained cosine. The
# sts head moves slowly, so the updates of the shared encoder probably cause this loss. Any clear gain over *untrained* comes from quora.
#
# ## 6 Cross-encoder or bi-encoder?
#
# BERT reads both sentences of a pair at once (a cross-encoder; here *packed*). The course's starter code encodes them separately (a
# bi-encoder; here *separate*), and the report does not say what it does. Count tokens first.
#
# **Predict before you run.** Which way has more tokens, and by how many per pair?

# %%
hows = ("packed", "separate")
both = {how: encode(tokenizer, data["quora"].train, max_length=160, pairs=how) for how in hows}
first, second = both["separate"].input_ids, both["separate"].second.input_ids
tokens = {"packed": sum(map(len, both["packed"].input_ids))}
tokens["separate"] = sum(map(len, first)) + sum(map(len, second))
n = len(data["quora"].train)
assert tokens["separate"] == tokens["packed"] + n or both["packed"].truncated

# %% tags=["answer"] jupyter={"outputs_hidden": true}
mean = {how: number / n for how, number in tokens.items()}
extra = mean["separate"] - mean["packed"]
print(
    f"Answer: separate, by {extra:.1f}: {mean['separate']:.1f} against {mean['packed']:.1f} a pair."
)

# %% [markdown]
# The extra token is a second [CLS]: `[CLS] a [SEP] b [SEP]` against `[CLS] a [SEP]` and `[CLS] b [SEP]`. On the other hand,
# attention compares every pair of tokens of an input. Two inputs of half the length have half as many comparisons. So we measure
# the time. Both ways alternate on the same rows, and the ratio is taken within each round, so that a busy moment affects both.

# %%
import time

from mmlkit.data import plan

chosen = plan(both["packed"].lengths, 8, seed=seed)[:11]
timed = {how: new_model(multiverse=False, pals=False, pairs=how)[0].train() for how in both}
optimizers = {how: make_optimizer(model, lr=size.lr) for how, model in timed.items()}
scaler = torch.amp.GradScaler() if precision == "fp16" else None


def seconds(how, rows):
    """The time of a training step."""
    batch, started = collate(both[how], rows).to(device), time.perf_counter()
    train_step(timed[how], batch, optimizers[how], precision=precision, scaler=scaler).total.item()
    return time.perf_counter() - started


# %%
turns = pd.DataFrame([{how: seconds(how, rows) for how in both} for rows in chosen])
ratio = (turns["separate"] / turns["packed"]).iloc[1:]  # the first round warms up
print(f"separate / packed: median {ratio.median():.2f}, in {len(ratio)} rounds of", end=" ")
print(f"{len(chosen[0])} pairs from {ratio.min():.2f} to {ratio.max():.2f}")

# %% [markdown]
# Above 1, separate pairs take longer. A step has two passes then, but each token is compared with fewer others.
#
# The quality may matter more, so the system *nothing* is trained once more with the other form of pairs. Again this is one seed.

# %%
del models, timed, optimizers  # memory
other = "packed" if pairs == "separate" else "separate"
scores[other] = answers(run(f"nothing, {other}", **SYSTEMS["nothing"], pairs=other)[0])
ways = {other: scores[other], pairs: scores["nothing"], "untrained": scores["untrained"]}
right = {name: one["quora"].argmax(1) == dev["quora"].labels for name, one in ways.items()}
away = right[other].astype(float) - right[pairs]
drawn = np.random.default_rng(seed).choice(away, size=(2000, len(away))).mean(1)
low, high = np.quantile(drawn, [0.025, 0.975])
print(f"quora, {other} minus {pairs}: {away.mean():+.3f}, 95 % interval {low:+.3f} to {high:+.3f}")
pd.Series({name: one.mean() for name, one in right.items()}).round(3).to_frame("quora accuracy")

# %% [markdown]
# *The table leaves sts out, because the start would not be equal:* the bi-encoder's head starts at the cosine, and the
# cross-encoder's head from random weights. The heads of quora differ too: one reads four vectors, the other one vector. The
# interval is a bootstrap over dev rows.
#
# In a cross-encoder, every layer can compare words of both sentences. A bi-encoder compares two finished vectors. With enough data a
# cross-encoder usually scores higher. But MiniLM was trained to make vectors of single sentences, and a few dozen steps do not change this.
# Therefore the fast profile here is a bi-encoder, and the other profiles are cross-encoders. (The profile `paper` of `cs224n-project`
# compares both, over seeds.)
#
# ## 7 Pruned and folded
#
# We look at the heads of the system *everything*.

# %%
model, pruners = whole
pruned = {
    name: next(hook for hook in pruners if hook.head is model.heads[name])
    for name in ("sst", "quora")
}
ax = plots.head_counts(
    {name: (pruner.head.num_heads, pruner.events) for name, pruner in pruned.items()},
    last_step=steps["everything"],
    title="the model with everything",
)
ax.set_xlabel("training step of the task")
plt.show()

# %%
for name, pruner in pruned.items():
    left, seen = int(pruner.head.active.sum()), steps["everything"][name]
    print(f"{name}: {left} of {pruner.head.num_heads} heads in the weights of the best epoch,")
    print(f"  after at most {seen} steps and {len(pruner.events)} pruning checks")

# %% [markdown]
# *The heads of each task, after each check. The best epoch may be before the last check.* Their number depends on the seed and the
# bandwidth (notebook 04). The recorded pruning runs in section 9 also differ widely, from a few heads to most of them. After so few
# steps, such a count says little about the quality of the heads.
#
# For the deployed model the number of heads does not matter. The mean of linear heads is one linear head. `MultiverseHead.forward`
# averages the *weights*, and so does folding, so their agreement would prove nothing. We compare the folded model with the mean of the
# *logits* of all single heads. If only one head is left, this comparison is trivial.

# %%
deployed = model.eval().collapse().eval()
largest = {}
for name in pruned:
    how = pairs if data[name].task.is_pair else "packed"
    batch = collate(encode(tokenizer, dev[name], pairs=how), range(16)).to(device)
    with torch.no_grad():
        each = model.heads[name].all_logits(*model.inputs(batch))  # [B,A,C]
        largest[name] = (each.mean(1) - deployed(batch)).abs().max().item()
    print(f"{name}: mean of {each.shape[1]} heads against one head, {largest[name]:.0e} apart")
assert max(largest.values()) < 1e-4

# %%
pd.DataFrame({"trained": counts(model), "deployed": counts(deployed)}).map("{:,}".format)

# %% [markdown]
# The saved model has three weight files: the encoder, which transformers can open as any BERT; the PALs; and the folded heads.

# %%
from mmlkit.training import load_model, save_model

folder = Path(output_dir) / "together"
save_model(deployed, folder, metadata={"seed": seed, "profile": profile})
again = load_model(folder, device=device)  # the same device: devices round differently
few = dev["sst"].take(range(16))
assert np.allclose(predict_scores(again, few), predict_scores(deployed, few), atol=1e-5)
files = sorted(folder.glob("*.safetensors"))
print({file.name: f"{file.stat().st_size / 1000:,.0f} kB" for file in files})

# %% [markdown]
# ### Your own sentences
#
# The next cell shows what the loaded model predicts for two sentences. In a live notebook, with a running kernel, two text boxes
# accept other sentences.

# %%
from mmlkit.training import predict, predict_proba


def show(first, second):
    """Print the predictions of all three tasks."""
    sentiment = predict_proba(again, [first], task="sst")[0]
    label = dev["sst"].task.labels[sentiment.argmax()]
    print(f"sentiment of the first: {label} ({sentiment.max():.0%})")
    same = predict_proba(again, [(first, second)], task="quora")[0, 1]
    print(f"probability that they are duplicates: {same:.0%}")
    score = predict(again, [(first, second)], task="sts")[0]
    print(f"similarity: {score:.1f} of 5")


texts = dict(first="How do I learn to swim?", second="What is the best way to learn swimming?")
plots.text_boxes(show, **texts)

# %% [markdown]
# These predictions come from a model that was trained for a few steps. An untrained head gives each sentiment about 20 %.
#
# ## 8 Hand it in
#
# The course wants six files, a *dev* and a *test* file for each task, in a format of its own. `write_submission` reads the course's
# files and writes predictions. Without these files, `write_course_files` brings our slices into their form.

# %%
from mmlcourse.studies import check_submission, write_course_files, write_submission

course = Path(source)
if not course.is_dir():
    judged = {name: replace(one, dev=dev[name]) for name, one in data.items()}
    course = write_course_files(judged, Path(output_dir) / "course", limit=dev_rows)
handed = Path(output_dir) / "predictions"
submitted = write_submission(again, course, handed, max_length=size.max_length)
print({name: round(score, 3) for name, score in submitted.items()})
print(*sorted(file.name for file in handed.iterdir()), sep="\n")

# %%
lines = (handed / "sts-dev-output.csv").read_text(encoding="utf-8").split("\n")
print(*map(repr, lines[:4]), sep="\n")
problems = check_submission(handed, course)
print(f"{len(problems)} problems", *problems, sep="\n")
assert not problems or course == Path(source)  # of the course's own files, one may be missing

# %% [markdown]
# The misspelling `Similiary`, a space on both sides of each comma, and a space at the end of every line belong to the format. Do not
# correct the header. (From the command line: `mmlkit submit --model FOLDER --source FOLDER`.)
#
# We also test whether the check detects mistakes. We insert five mistakes into a copy: a corrected header, a missing last row, a
# comma without its space, a label in words, and a missing file. (A line that cannot be read is reported twice, because its
# id then has no row.)

# %%
import shutil

broken = Path(shutil.copytree(handed, Path(output_dir) / "broken", dirs_exist_ok=True))
spoiled = {
    "sts-dev-output.csv": lambda text: text.replace("Similiary", "Similarity"),
    "sst-dev-output.csv": lambda text: "\n".join([*text.split("\n")[:-2], ""]),
    "sst-test-output.csv": lambda text: text.replace(" , ", ", ", 1),
    "para-dev-output.csv": lambda text: text.replace("0.0 \n", "no \n", 1),
}
for file, change in spoiled.items():
    if (broken / file).is_file():
        text = (broken / file).read_text(encoding="utf-8")
        (broken / file).write_text(change(text), encoding="utf-8", newline="")
(broken / "para-test-output.csv").unlink(missing_ok=True)
pd.DataFrame(check_submission(broken, course))[["file", "found", "expected"]]

# %% [markdown]
# It finds all five.
#
# ## 9 All recorded runs
#
# Statements about methods need several seeds. Such runs are in `results/`, made by `mmlkit reproduce NAME`. No number is typed in.

# %%
from mmlcourse.batch import (
    advice,
    claim_rows,
    claim_sentences,
    headlines,
    measurement_sentences,
    recorded_experiments,
    runs_table,
)

recorded = recorded_experiments()
runs_table(recorded) if recorded else print("no recorded runs here, so section 9 is empty")

# %%
pd.set_option("display.max_rows", None)  # pandas leaves out the middle of tables of over 60 rows
headlines(recorded) if recorded else None

# %% [markdown]
# Scores are times 100. Published numbers come from larger encoders and other data: compare only the sign of an improvement.
# MML has a loss on *edition 2* of the mini data, whose texts gave some labels away; *edition 3* is undecided.
#
# Next come the claims. Their intervals cover the choice of seeds, not of dev rows. A claim *holds* if its whole interval lies above zero,
# and *does not hold* if no part does. Otherwise, and with fewer than six seeds at 95 %, it *cannot be told*.
#
# MML's headline is the relative improvement over BERT in percent, on the dev splits of the other sets. Its first claim is the
# difference in points, on all their splits.

# %%
import textwrap

for title, sentences in claim_sentences(recorded).items():
    print(title)
    for sentence in sentences:
        print(textwrap.fill(sentence, 100, initial_indent="  - ", subsequent_indent="    "))

# %% [markdown]
# Only RTE raises the average (notebook 07). In joint training, the shared encoder gets the updates of all five tasks:

# %%
joint = next((one for one in recorded if one.title.startswith("together-or-alone")), None)
if joint:
    last = {"alone": 0, "together": 0}
    for one in joint.results:
        steps_of_rte = [row["step"] for row in one["history"] if row["task"] == "rte"]
        last[one["parameters"]["system"]] = max(steps_of_rte)
    times = last["together"] / last["alone"]
    print(f"RTE alone: {last['alone']:,} updates; with the others: {last['together']:,}")
    print(f"The encoder had {times:.1f} times as many updates.")
control = next((one for one in recorded if one.experiment.name == "real-company"), None)
for pair in control.compared if control else []:
    print(textwrap.fill(control.sentence(*pair), 100))

# %% [markdown]
# *The other sets add 2.3 points beyond as many updates, and 3.8 at the last epoch: the control keeps the best of 35 epochs.*
#
# There are also single measurements.

# %%
for name, sentence in measurement_sentences().items():
    print(textwrap.fill(f"{name}: {sentence}", 100, subsequent_indent="    "))

# %% [markdown]
# ### All claims on one axis
#
# The figure shows every claim with at least six seeds, in points. The slider sets the level.
#
# **Predict before you run.** How many of the claims are decided (hold or do not hold) at 80 %, at 95 % and at 99 %?

# %%
levels = [0.8, 0.95, 0.99]
by_level = {
    level: [row for row in claim_rows(recorded, level) if row[2].pairs >= 6] for level in levels
}
decided = {
    level: sum(outcome(one, at_least=least) != "cannot be told" for *_, one, least in rows)
    for level, rows in by_level.items()
}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
counted = ", ".join(f"{number} at {level:.0%}" for level, number in decided.items())
print(f"Answer: of {len(by_level[0.95])} claims, {counted}.")

# %%
drawn = [one for rows in by_level.values() for _, _, one, _ in rows]
limit = plots.axis_limit(drawn) if drawn else None  # the same axis for all levels


def draw_claims(level):
    """The forest of all recorded claims."""
    rows = [(title, textwrap.fill(says, 58), *rest) for title, says, *rest in by_level[level]]
    if rows:
        title = f"all recorded claims, intervals of {level:.0%}"
        plots.forest(rows, limit=limit, title=title).figure.set_dpi(80)  # a smaller file


plots.sliders(draw_claims, start={"level": 0.95}, level=levels)

# %%
words = [outcome(one, at_least=least) for *_, one, least in by_level[0.95]]
print("At 95 %:", ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))
planned = sum(len(one.experiment.claims) for one in recorded)
print(f"{planned - len(words)} further claims of these experiments have fewer seeds or no runs.")

# %% [markdown]
# *At 95 %, all claims of `real-stars`, `real-adaptation` and `real-adaptation-mnli` hold, annealed and proportional sampling are better
# than sequential training, and repaired PALs than the report's. In `together-or-alone`, joint training raises the average and RTE, lowers
# STS-B. In `real-multiverse`, MML raises the average, RTE and CoLA, lowers STS-B, and is better than `mv-m` at 2e-4. At one learning rate
# (`real-same-rate`) it raises nothing, and lowers MRPC and STS-B. On other sets MML is worse with edition 2 and in `real-transfer`, and
# undecided with edition 3 and at one learning rate (`real-transfer-same-rate`).* Right of zero, the first system is better. Except in
# controls, claims on one set or number of rows came after results.
#
# At 99 % at least eight pairs are needed. Without an effect, all $n$ differences have the same sign with probability $2^{1-n}$.
#
# Among twenty claims without any effect, about one interval of 95 % excludes zero.
#
# ### What to take from it
#
# Some claims have advice for each outcome. The next cell prints it for the outcomes found with at least six seeds.

# %%
for sentence in advice(recorded):
    print(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  "))

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: the overall score
#
# ● ○ ○ · 5 minutes
#
# Write the overall score (section 5). The correlation of a constant prediction is `nan`, and the report seems to count it as 0.


# %%
def my_overall(sst, quora, sts):
    """Two accuracies from 0 to 1, and Pearson's r from -1 to 1 or nan. Returns the score."""
    ...


_ = checks.check_overall(my_overall)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Bring $r$ from −1..1 to 0..1, then take the mean of three. `math.isnan` detects nan.
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
# ### Exercise 2: the share of the gradient
#
# ● ● ○ · 10 minutes
#
# Write the right chart of section 2 as a function: every task's share of the gradient, if all heads have gradients of equal length, without
# clipping.


# %%
def my_pull(probabilities, heads):
    """{task: p} and {task: number of heads}, in any order. Returns {task: share}, with sum 1."""
    ...


_ = checks.check_pull(my_pull)

# %% [markdown]
# <details><summary>Hint</summary>
#
# First compute $p_t A_t$ for each task, then divide by their sum.
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
# ● ● ● · 15 minutes
#
# Why six seeds? If a part has no effect, the sign of each seed's difference is like the toss of a fair coin. Return the probability
# that $n$ tosses are at least as one-sided as these signs, on *either* side. Six of six is the first case below 5 %.


# %%
def my_sign_test(differences):
    """One number per seed, none of them 0. Returns a probability, at most 1."""
    ...


_ = checks.check_sign_test(my_sign_test)

# %% [markdown]
# <details><summary>Hint</summary>
#
# There are `math.comb(n, i)` ways to have $i$ of $n$ on one side, each with probability $2^{-n}$. Start the sum at the larger
# number of equal signs, and take it twice. A probability is at most 1.
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

# %% [markdown]
# ## If it goes wrong
#
# - *One task learns and the others do not*: look at the gradient norms of section 4. With `clip=None`, a loss summed over hundreds
#   of heads dominates the others.
# - *"The sampler is for ... epochs"* from `fit`: give `TaskSampler` the same `epochs`, and sizes for exactly the tasks of `data`.
# - *A submission has problems with ids*: predict and check with the same folder.
#
# ## Takeaways of the whole course
#
# **Shown by algebra**, and by a cell or a test:
#
# - Many linear heads fold into one, so, when deployed, a multiverse model is as large as a model with linear heads. PALs remain, at
#   one sixtieth of BERT for each task.
# - An idle PAL changes no prediction and no update of the shared encoder.
# - Attention over one vector is an affine map.
# - With a frozen encoder, the training of one task cannot change the predictions of another.
# - As printed, Algorithm 1 never prunes. Several printed improvements do not follow from the numbers beside them.
#
# **Decided or not decided by our runs**: see the list of claims in section 9. It changes with new runs.
#
# **Not shown by these papers**, as far as we see:
#
# - That multiverse heads help where several tasks share an encoder. The MML papers train one task at a time.
# - That annealed sampling is better than sequential training *with equally many steps*. In our `real-sampling` it is, and proportional
#   sampling, too.
# - That most printed differences would remain with another seed. The papers mention no repetitions. Dev scores, also most of ours, are of
#   the best dev epoch.
#
# ## References
#
# Malkiel and Wolf (2021), *Maximal Multiverse Learning for Promoting Cross-Task Generalization of Fine-Tuned Language Models*,
# EACL. Stickland and Murray (2019), *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*,
# ICML. Liu et al. (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding*, ACL. Hu and Xiao, *Multitask BERT*,
# CS224N default project report. Efron and Tibshirani (1993), *An Introduction to the Bootstrap*.
#
# Before: [11 Projected attention layers](11_pals.ipynb). Back to the beginning: [00 Start here](00_start_here.ipynb).
