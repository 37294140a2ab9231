# %% [markdown]
# # 10 Annealed sampling
#
# One encoder learns several tasks, and every batch belongs to one task. This notebook computes the probability of each task by hand
# and tests the draws. It then measures how much accuracy a task loses while the others are trained.
#
# | | |
# |---|---|
# | time | 1½ hours to read and solve (estimated) · fast: 4 min on two CPU cores · colab: about 15 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [02 Fine-tuning](02_finetuning.ipynb) |
# | papers | Stickland and Murray 2019 (BERT and PALs), section 4.1 · *Multitask BERT*, a CS224N report, section 3.3 and Table 1 |

# %% [markdown]
# ## You will be able to
#
# - compute the probability of each task from its size and an exponent, and anneal the exponent,
# - test with a chi-square whether draws follow their probabilities, and say what this test cannot detect,
# - measure forgetting: the accuracy that a task loses while other tasks are trained,
# - predict from two gradients whether a step of one task harms another,
# - count how often a schedule shows each row of a large and of a small data set.
#
# ![Three training sets with the sizes 16 to 4 to 1. Each size is raised to the power alpha and divided by the sum. With alpha 1,
# in the first epoch, most batches are of the large task. With alpha 0.2, in the last epoch, the three tasks are mixed. All
# batches go through one shared encoder with a head for each task.](images/10_sampling.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the files of the tasks; None: what the profile says
steps = None  # of each task in the live runs; None: chosen by the profile
lr = None  # of the encoder in the live runs; None: what the profile says

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

open_notebook("10", profile, output_dir)

# %% tags=["effect"]
import itertools

import numpy as np
import pandas as pd
import torch

from mmlcourse.lessons.profiles import get_profile

# %% tags=["effect"]
from mmlkit.bert import load_pretrained
from mmlkit.data import collate, encode, load_task, plan
from mmlkit.heads import LinearHead, PairHead
from mmlkit.runtime import fastest_precision, pick_device, seeded
from mmlkit.training import MultitaskModel, TaskSampler, make_optimizer, score_encoded, train_step

size, device = get_profile(profile), pick_device()
source, lr = source or size.source, lr or (1.5e-4 if profile == "fast" else size.lr)
precision = fastest_precision(device) if size.precision == "auto" else size.precision

# %%
import matplotlib.pyplot as plt

from mmlcourse import published
from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.plots import sliders
from mmlcourse.machine import describe

machine = describe()
print(f"mmlkit {mmlkit.__version__}, torch {machine['versions']['torch']}", end=", ")
print(f"{machine['device']} in {precision}")
print(f"weights {size.model}, data {source}, learning rate of the encoder {lr:g}")

# %% [markdown]
# ## 1 Which task comes next?
#
# Every batch comes from one task. A step updates the shared encoder and the head of this task, and the other heads do not change.
# A *schedule* determines the task of each step. The CS224N report *Multitask BERT* compares two kinds. Its baseline trains *one
# task after another*: all of SST, then all of Quora, then all of STS, in every epoch. The report suspects that this overwrites
# earlier tasks. Its other systems *draw* the task of each step, with probabilities that depend on the sizes of the sets.
#
# Let $N_t$ be the size of task $t$, and $\alpha$ an exponent between 0 and 1:
#
# $$p_t = \frac{N_t^\alpha}{\sum_s N_s^\alpha}$$
#
# ### Three sizes, on paper
#
# Take $N = 1600, 400, 100$, which is $16 : 4 : 1$.
#
# | $\alpha$ | $N^\alpha$, up to a factor | $p$ | name |
# |---|---|---|---|
# | 1 | 16, 4, 1 | 16/21, 4/21, 1/21 | proportional |
# | ½ | 4, 2, 1 | 4/7, 2/7, 1/7 | square root |
# | 0 | 1, 1, 1 | 1/3, 1/3, 1/3 | uniform |
#
# **Predict before you run.** With $\alpha = 0.2$: is the largest task drawn at least twice as often as the smallest?

# %%
sizes = {"quora": 1600, "sst": 400, "sts": 100}


def probabilities(sizes, alpha):
    """p_t of every task."""
    weights = {task: N**alpha for task, N in sizes.items()}
    return {task: weight / sum(weights.values()) for task, weight in weights.items()}


by_hand = {1: [16 / 21, 4 / 21, 1 / 21], 0.5: [4 / 7, 2 / 7, 1 / 7], 0: [1 / 3, 1 / 3, 1 / 3]}
for alpha, p in by_hand.items():
    assert np.allclose(list(probabilities(sizes, alpha).values()), p)
by_alpha = {alpha: probabilities(sizes, alpha) for alpha in (1, 0.5, 0.2, 0)}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
ratio = by_alpha[0.2]["quora"] / by_alpha[0.2]["sts"]
print(f"Answer: {'yes' if ratio >= 2 else 'no'}, the ratio is 16 to the power 0.2 = {ratio:.2f}.")

# %%
pd.DataFrame(by_alpha).T.rename_axis("alpha").round(3)

# %% [markdown]
# The probabilities of two tasks $a$ and $b$ have the ratio $(N_a / N_b)^\alpha$. A common factor of all sizes cancels. So it does
# not matter whether $N$ counts rows or batches.
#
# ### Annealing
#
# Stickland and Murray reduce $\alpha$ from epoch to epoch. With $e$ counted from 1 to $E$:
#
# $$\alpha_e = 1 - 0.8\,\frac{e - 1}{E - 1}$$
#
# | symbol | name | shape or value |
# |---|---|---|
# | $N_t$ | size of task $t$, `sizes[task]` | number |
# | $\alpha_e$ | exponent in epoch $e$, `exponent(e, E)` | 1 in the first epoch, 0.2 in the last |
# | $p_t$ | probability of task $t$, `probabilities(sizes, alpha)` | `{task: p}`, adds up to 1 |
# | $E$ | epochs | 25 in the paper, 10 in the report |
# | – | task of each step, `order` | list of names, one per step of the epoch |
#
# At first the large tasks get most of the steps, because they have the most rows. Towards the end the steps are distributed more
# equally, so that a small task is not overwritten by many steps of the others. Whether this is better has to be measured.
#
# For $E = 1$ the fraction is 0/0, and we take $\alpha = 1$. (The authors' code counts $e$ from 0 and divides by $E - 1$, which
# is the same schedule.)


# %%
def exponent(e, E):
    """alpha in epoch e of E."""
    return 1.0 if E == 1 else 1 - 0.8 * (e - 1) / (E - 1)


E = 5
assert np.allclose([exponent(e, E) for e in range(1, E + 1)], [1, 0.8, 0.6, 0.4, 0.2])
per_epoch = {
    e: {"alpha": exponent(e, E)} | probabilities(sizes, exponent(e, E)) for e in range(1, E + 1)
}
pd.DataFrame(per_epoch).T.rename_axis("epoch").round(3)

# %% [markdown]
# ## 2 Draw
#
# The order of an epoch has one draw per step. It depends on the seed and the epoch alone. So a resumed run continues with the same
# tasks, and the order need not be saved.


# %%
def draw(p, steps, seed, epoch):
    """The task of every step of an epoch."""
    generator = np.random.default_rng([seed, epoch])
    return generator.choice(list(p), size=steps, p=list(p.values())).tolist()


orders = {e: draw(probabilities(sizes, exponent(e, E)), 300, seed, e) for e in range(1, E + 1)}
print("epoch 1:", *orders[1][:12], "...\nepoch 5:", *orders[5][:12], "...")
counted = pd.DataFrame({e: pd.Series(order).value_counts() for e, order in orders.items()})
counted.loc[list(sizes)].rename_axis("drawn in 300 steps")

# %% [markdown]
# **Checkpoint.** The library's `TaskSampler` has the same probabilities and the same draws.

# %%
sampler = TaskSampler("annealed", sizes=sizes, epochs=E, steps_per_epoch=300, seed=seed)
in_millions = {task: 10**6 * N for task, N in sizes.items()}  # only the ratios count
larger = TaskSampler("annealed", sizes=in_millions, epochs=E)
for e in range(1, E + 1):
    p = list(probabilities(sizes, exponent(e, E)).values())
    assert np.allclose(list(sampler.probabilities(e).values()), p)
    assert np.allclose(list(larger.probabilities(e).values()), p)
    assert sampler.order(e) == orders[e]
single = TaskSampler("annealed", sizes=sizes).probabilities(1)  # E = 1
assert single == TaskSampler("proportional", sizes=sizes).probabilities(1)
print("probabilities, draws and the case E = 1: equal")

# %% [markdown]
# From here on we import it. The class has seven kinds of schedules. For `sequential` and `merged`, `sizes` holds numbers of batches. For the
# other kinds, only the ratios of `sizes` matter if `steps_per_epoch` is given.
#
# | kind | the task of a step |
# |---|---|
# | `proportional`, `sqrt`, `uniform` | drawn with $\alpha = 1$, ½, 0 |
# | `annealed` | drawn with $\alpha$ from 1 to 0.2 |
# | `round_robin` | in turn |
# | `sequential` | all of one task, then all of the next |
# | `merged` | every batch of every task once, shuffled (Algorithm 1 of MT-DNN) |
#
# ## 3 Do the draws follow the probabilities?
#
# A sampler with a wrong exponent raises no error. It only trains with other proportions. So we count the draws $o_t$ and
# compare them with the expected numbers $n p_t$:
#
# $$\chi^2 = \sum_t \frac{(o_t - n p_t)^2}{n p_t}$$
#
# With the right probabilities, this number is on average the number of tasks minus one. The p-value is the probability that right
# probabilities give a value at least as large. For three tasks and many draws it is $e^{-\chi^2/2}$.

# %%
from scipy import stats

drawn = pd.Series(orders[1]).value_counts().reindex(list(sizes), fill_value=0)
expected = 300 * pd.Series(probabilities(sizes, 1.0))
parts = (drawn - expected) ** 2 / expected
chi2, p_value = parts.sum(), np.exp(-parts.sum() / 2)
assert np.allclose([chi2, p_value], stats.chisquare(drawn, expected))
print(f"chi-square {chi2:.2f}, p-value {p_value:.2f}")
pd.DataFrame({"drawn": drawn, "expected": expected.round(1), "part of chi-square": parts.round(3)})

# %% [markdown]
# A single test proves little. So we repeat it 400 times and reject where the p-value is below 5 %. The draws of the next cell come
# from numpy's multinomial distribution, which is faster than the sampler. A possible mistake is $\alpha = 1 - 0.8\,e/(E-1)$, where
# the 1 is not subtracted from the epoch. In epoch 2 of 5 it gives 0.6 instead of 0.8.
#
# **Predict before you run.** In what share of the 400 tests are the correct probabilities rejected? In what share are the wrong
# ones rejected after 30, 300 and 3,000 draws?


# %%
def rejected(p_true, p_claimed, steps, samples=400):
    """Share of multinomial samples of p_true that are rejected as draws from p_claimed."""
    counts = np.random.default_rng(seed).multinomial(steps, list(p_true.values()), size=samples)
    claimed = steps * np.array(list(p_claimed.values()))
    return (stats.chisquare(counts, claimed, axis=1).pvalue < 0.05).mean()


correct, wrong = probabilities(sizes, exponent(2, E)), probabilities(sizes, 1 - 0.8 * 2 / (E - 1))
share = pd.DataFrame(index=["correct", "wrong"])
for n in (30, 300, 3000):
    share[n] = [rejected(correct, correct, n), rejected(wrong, correct, n)]
assert share.loc["correct"].between(0.01, 0.1).all() and share.loc["wrong", 3000] > 0.99

# %% tags=["answer"] jupyter={"outputs_hidden": true}
print(f"Answer: {share.loc['correct'].min():.0%} to {share.loc['correct'].max():.0%}", end=" ")
print(
    "of the multinomial draws with correct probabilities are rejected. Of the wrong ones,", end=" "
)
print(", ".join(f"{share.loc['wrong', n]:.0%} after {n:,} draws" for n in share), end=".\n")

# %% [markdown]
# A level of 5 % rejects correct probabilities in about one test of twenty. Thirty draws mostly do not detect the mistake, and
# thousands do. The library's own tests draw 20,000.
#
# ### What frequencies cannot detect
#
# Two schedules take every batch exactly once: `merged` shuffles all batches, and `sequential` sorts them by task.
#
# **Predict before you run.** Which of `proportional`, `merged` and `sequential` has the smallest chi-square?

# %%
batches_of = {task: N // 10 for task, N in sizes.items()}
statistics = {"expected of independent draws": [2.0, sum(p * p for p in by_hand[1])]}
for kind in ("proportional", "merged", "sequential"):
    order = TaskSampler(kind, sizes=batches_of, seed=seed).order(1)
    counts = pd.Series(order).value_counts()[list(sizes)]
    statistic = stats.chisquare(counts, len(order) * np.array(by_hand[1])).statistic
    statistics[kind] = [statistic, np.mean([a == b for a, b in zip(order, order[1:])])]
columns = ["chi-square", "same task as the step before"]
repeats = pd.DataFrame(statistics, index=columns).T
assert repeats.loc["sequential", columns[0]] < 1e-9 < repeats.loc["proportional", columns[0]]

# %% tags=["answer"] jupyter={"outputs_hidden": true}
lowest = repeats[columns[0]] < 1e-9
print(f"Answer: {' and '.join(repeats.index[lowest])} have a chi-square of 0.")

# %%
repeats.round(3)

# %% [markdown]
# The shares of these two are exact, because every batch occurs once. Frequencies say *how often* a task is drawn, and not *when*. The last
# column measures the order: in blocks, nearly every step has the same task as the step before. Independent draws repeat the task with
# probability $\sum_t p_t^2$.
#
# The next figure shows shares and order together.


# %%
def schedule(kind):
    """Probabilities and draws of one kind."""
    few = {"quora": 64, "sst": 16, "sts": 4}
    axes = plots.sampling(TaskSampler(kind, sizes=few, epochs=E, seed=seed), steps=84)
    axes[0].set_ylim(0, 1)


kinds = ["annealed", "proportional", "sqrt", "uniform", "round_robin", "merged", "sequential"]
sliders(schedule, start={"kind": "annealed"}, kind=kinds)

# %% [markdown]
# *Annealed sampling starts with 76 % of the steps for the largest task and ends with 43 %. The smallest task rises from 5 % to
# 25 %. The slider chooses among seven schedules.*
#
# ## 4 One shared parameter
#
# The order matters because the tasks change the same parameters. The smallest shared model is a single parameter $w$. Task A has
# its minimum at 1, task B at −1:
#
# $$L_A = (w - 1)^2 \qquad L_B = (w + 1)^2$$
#
# With the learning rate 0.1, a step on A moves $w$ by a fifth of its distance to 1. The starting point is $w = 0$.
#
# **Predict before you run.** After twenty steps on A and then twenty on B, what is $L_A$? What is it if A and B alternate?


# %%
def descend(order, w=0.0, rate=0.1):
    """w after every step; order holds each step's minimum, 1 or -1."""
    path = [w]
    for goal in order:
        path.append(path[-1] - rate * 2 * (path[-1] - goal))
    return np.array(path)


def drawn_goals(share):
    """Forty steps, each of task A with probability share."""
    return np.random.default_rng(seed).choice([1, -1], size=40, p=[share, 1 - share])


ways = {"A, then B": [1] * 20 + [-1] * 20, "in turn": [1, -1] * 20, "A with 0.8": drawn_goals(0.8)}
ways = {name: descend(order) for name, order in ways.items()}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
loss_a = {name: (w[-1] - 1) ** 2 for name, w in ways.items()}
print(f"Answer: L_A is {loss_a['A, then B']:.2f} after the blocks", end=" ")
print(f"and {loss_a['in turn']:.2f} when the tasks take turns; it was 1 at the beginning.")
assert loss_a["A, then B"] > 3.5 and abs(ways["in turn"][-1]) < 0.2

# %%
with plots.style():
    fig, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for (name, w), line in zip(ways.items(), plots.LINES):
        ax.plot(w, line, label=name)
    for goal, name in ((1, "minimum of A"), (-1, "minimum of B")):
        ax.axhline(goal, color="black", linewidth=0.8, linestyle=":")
        ax.text(42.5, goal, name, va="center", fontsize=9)
    ax.set(
        xlabel="step", ylabel="shared parameter w", title="Two tasks, one parameter", xlim=(-2, 42)
    )
    ax.legend(loc="lower left")
    plt.show()

# %% [markdown]
# *In blocks, w comes within 0.02 of the minimum of A and then moves to the minimum of B. In turn, it stays near 0. With
# random draws of A with probability 0.8, it stays mostly between 0 and 1.*
#
# In blocks the last task determines the result, and the first one is forgotten. A step drawn with $p_t$ has the expected gradient
# $\sum_t p_t \nabla L_t$. That is the gradient of the *weighted* loss $\sum_t p_t L_t$. Here its minimum is at $w = p_A - p_B$. So with
# plain gradient descent, random draws weight the losses, and annealing changes the weights from epoch to epoch.


# %%
def weighted(share):
    """Forty random steps, and the minimum of the weighted loss."""
    with plots.style():
        fig, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
        ax.plot(descend(drawn_goals(share)), label="w")
        ax.axhline(2 * share - 1, color="black", linestyle="--", label="p_A − p_B")
        ax.set(xlabel="step", ylabel="shared parameter w", ylim=(-1.05, 1.05))
        ax.set(title=f"A is drawn with probability {share}")
        ax.legend(loc="lower right")


sliders(weighted, start={"share": 0.8}, share=[0.5, 0.6, 0.7, 0.8, 0.9, 1.0])

# %% [markdown]
# *With probability 0.8 for A, the parameter varies around 0.6, the minimum of the weighted loss, after about twenty steps. The
# slider changes the probability.*
#
# A real encoder has millions of parameters, so it may fit several tasks at once. How much it forgets has to be measured.
#
# ## 5 Forgetting, measured
#
# The tasks are SST (sentiment, five labels), QQP (duplicate questions from Quora, two labels) and SNLI (inference, three labels). Two runs
# start from the same parameters. `sequential` trains SST, then QQP, then SNLI. `merged` trains *exactly the same batches* in a
# mixed order.
#
# The learning rate is constant, so every batch has the same learning rate in both runs. The two sentences of a pair are encoded
# separately (bi-encoder), as in notebook 05. All three tasks have equal sizes, so $p_t = 1/3$ for every $\alpha$, and
# annealing would change nothing.
# Every accuracy is measured on all dev rows.

# %% tags=["effect"]
TASKS = ("sst", "qqp", "snli")
budgets = {"fast": (40, 8, None), "colab": (250, 32, 8000)}
per_task, batch_size, limit = budgets.get(profile, (1000, 32, None))
steps = steps or per_task
tokenizer = load_pretrained(size.model)[1]
data = {name: load_task(name, source, limit=limit, seed=seed) for name in TASKS}


def encoded(split):
    """The tokens of a split; the sentences of a pair are separate."""
    pairs = "separate" if split.task.is_pair else "packed"
    return encode(tokenizer, split, pairs=pairs, max_length=size.max_length)


train_set = {name: encoded(one.train) for name, one in data.items()}
dev_set = {name: encoded(one.dev) for name, one in data.items()}


# %% tags=["effect"]
def new_model():
    """The pretrained encoder, and a head for each task, initialised with the seed."""
    with seeded(seed, device):
        encoder, _ = load_pretrained(size.model)
        D, heads = encoder.config.hidden_size, {}
        for name, one in data.items():
            kind = PairHead if one.task.is_pair else LinearHead
            heads[name] = kind(D, one.task.num_labels, pooling=size.pooling)
    return MultitaskModel(encoder, heads, tokenizer).to(device)


def batches(name):
    """The endless stream of batches of a task, the same in both runs."""
    for epoch in itertools.count():
        for rows in plan(train_set[name].lengths, batch_size, seed=seed, epoch=epoch):
            yield collate(train_set[name], rows).to(device)


# %% [markdown]
# Each step is the `train_step` of notebook 02. In your own work, `fit(model, data, sampler=TaskSampler(...))` does all of it.


# %% tags=["effect"]
def right(model, name):
    """For each dev row of a task 1 if the prediction is right, else 0."""
    scores = score_encoded(model, dev_set[name], precision=precision)
    return (scores.argmax(1) == dev_set[name].labels).astype(float)


# %% tags=["effect"]
def train(order, measured, copies=None):
    """Train in this order. measured: {step: the tasks whose dev rows are predicted after it}.

    copies: a dict for a copy of the parameters at the end of the first third of the steps."""
    model, streams, found = new_model(), {name: batches(name) for name in TASKS}, {}
    optimizer = make_optimizer(model, lr=lr, head_lr=size.head_lr)
    scaler = torch.amp.GradScaler() if precision == "fp16" else None
    with seeded(seed, device):
        for step, name in enumerate(order, start=1):
            options = {"precision": precision, "scaler": scaler}
            train_step(model.train(), next(streams[name]), optimizer, **options)
            found |= {(step, task): right(model, task) for task in measured.get(step, ())}
            if copies is not None and step == steps:
                copies |= {key: value.clone() for key, value in model.state_dict().items()}
    return model, found


# %% [markdown]
# **Predict before you run.** SST is the first block. How many points of accuracy does it lose while QQP and SNLI are trained?
# Which order ends with the higher mean accuracy of the three tasks, and which with the higher accuracy of SST?

# %% tags=["effect"]
same = dict.fromkeys(TASKS, steps)
orders = {
    kind: TaskSampler(kind, sizes=same, seed=seed).order(1) for kind in ("sequential", "merged")
}
ends = [steps, 2 * steps, 3 * steps]
after_blocks = {end: TASKS[: i + 1] for i, end in enumerate(ends)}
only_sst = {ends[0]: ("sst",), ends[1]: ("sst",), ends[2]: TASKS}
last, found, after_sst = {}, {}, {}
last["sequential"], found["sequential"] = train(orders["sequential"], after_blocks, after_sst)
last["merged"], found["merged"] = train(orders["merged"], only_sst)
accuracy = {kind: {key: one.mean() for key, one in f.items()} for kind, f in found.items()}

# %% tags=["effect"]
at_end = {kind: np.mean([accuracy[kind][ends[2], name] for name in TASKS]) for kind in orders}
lost = accuracy["sequential"][ends[0], "sst"] - accuracy["sequential"][ends[2], "sst"]
gained = accuracy["merged"][ends[2], "sst"] - accuracy["sequential"][ends[2], "sst"]
effects = {
    "SST: accuracy lost after its own block": float(lost),
    "SST at the end: merged minus sequential": float(gained),
    "mean accuracy at the end: merged minus sequential": float(
        at_end["merged"] - at_end["sequential"]
    ),
}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
better = "merged" if at_end["merged"] > at_end["sequential"] else "sequential"
print(
    f"Answer: SST loses {100 * lost:.0f} points in the sequential run. The {better} order", end=" "
)
print(f"ends higher: merged {at_end['merged']:.3f}, sequential {at_end['sequential']:.3f}.")
print(f"The accuracy of SST at the end, merged minus sequential: {100 * gained:+.0f} points.")
assert not size.effects or lost > 0, "a task should forget while the others are trained"

# %%
chance = {name: np.bincount(dev_set[name].labels).max() / len(dev_set[name]) for name in TASKS}
histories = {}
for kind in orders:
    history = pd.Series(accuracy[kind]).unstack().reindex(columns=list(TASKS))
    histories[kind] = (history.rename_axis("step").reset_index(), orders[kind])
dev_rows = {name: len(dev_set[name]) for name in TASKS}
plots.forgetting(histories, ylabel="dev accuracy", baselines=chance, rows=dev_rows)
plt.show()
for kind in orders:
    change = accuracy[kind][ends[2], "sst"] - accuracy[kind][ends[0], "sst"]
    print(f"{kind}: accuracy of SST from step {ends[0]} to step {ends[2]}: {change:+.3f}")

# %% [markdown]
# *Each run measures SST three times: left in blocks, right in mixed order. Bars show one standard error of an accuracy,
# and dotted lines show the majority classes. The printed lines have the change of SST from
# step 40 to step 120.*
#
# The head of SST does not change in the blocks of the other tasks. So its drop in accuracy comes from changes of the shared
# encoder. A task near its dotted line has learned little in its few steps. The share of each task in the difference of
# the means follows from the next table.
#
# The batches are the same in both runs. So the runs differ in the order and in the random numbers of dropout alone. The next table
# has all accuracies, with the majority class of each task.

# %%
summary = {("majority class", ""): chance}
for kind, label in (("sequential", "after its block"), ("sequential", "at the end")):
    when = {
        name: ends[i] if label == "after its block" else ends[2] for i, name in enumerate(TASKS)
    }
    summary[kind, label] = {name: accuracy[kind][when[name], name] for name in TASKS}
summary["merged", "at the end"] = {name: accuracy["merged"][ends[2], name] for name in TASKS}
summary = pd.DataFrame(summary).T
summary.assign(mean=summary.mean(axis=1)).round(3)

# %% [markdown]
# Compare the end of SST in blocks with its majority class. Where a task hardly learned in its own block, its gain in `merged` is not
# avoided forgetting.
# The next cells show how certain these numbers are. The first one draws the dev rows with replacement. The second one reads runs
# with other seeds (`benchmarks/lesson_effects.py`). A mean below about three standard errors may be chance.
#
# QQP and SNLI have groups of related dev rows, and here every row is drawn alone. So the intervals of these two tasks and of the
# mean are too narrow.

# %%
from mmlcourse.studies import paired_bootstrap, recorded_effects


def show(name, compared):
    """Print a Comparison on one line."""
    interval = f"{compared.low:+.3f} to {compared.high:+.3f}"
    print(f"{name}: {compared.difference:+.3f} (95 % interval {interval})")


blocks, mixed = found["sequential"], found["merged"]
show("SST lost in blocks", paired_bootstrap(blocks[ends[0], "sst"], blocks[ends[2], "sst"]))
for name in TASKS:
    pair = paired_bootstrap(mixed[ends[2], name], blocks[ends[2], name])
    show(f"{name} at the end, merged minus sequential", pair)
weight = {name: sum(dev_rows.values()) / len(TASKS) / dev_rows[name] for name in TASKS}
at_last = [[weight[n] * one[ends[2], n] for n in TASKS] for one in (mixed, blocks)]
pair = paired_bootstrap(*map(np.concatenate, at_last))  # so each task has a third of the weight
show("mean of the tasks, merged minus sequential", pair)

# %%
for claim, row in recorded_effects("10").iterrows():
    print(f"{claim}: {row['mean']:+.3f} ± {row.standard_error:.3f} (mean and standard error),")
    print(f"    above zero with {row.positive:.0f} of {row.seeds:.0f} other seeds, beside this run")

# %% [markdown]
# ### How not to measure forgetting
#
# Forgetting is often computed as the *maximum* of all measurements minus the last one. This number is never negative, and random
# errors of the measurements make it too large. The next cell takes a task with the constant true accuracy 0.6. It is measured
# twelve times, each time on 160 new rows.

# %%
measured = np.random.default_rng(seed).binomial(160, 0.6, size=(2000, 12)) / 160
by_maximum = (measured.max(axis=1) - measured[:, -1]).mean()
by_place = (measured[:, 3] - measured[:, -1]).mean()
print(f"maximum minus end: {by_maximum:.3f}; fourth measurement minus end: {by_place:+.3f}")

# %% [markdown]
# By the first rule, a task that forgets nothing seems to lose several points. We therefore compare two measurements whose places
# are fixed before the run. If all measurements use the same dev rows, their errors are correlated. The bias is then smaller, and it
# is still above zero.
#
# ### A possible reason: gradients
#
# Let $g_A$ and $g_B$ be the gradients of the two losses. A small step $-\varepsilon\, g_B$ of task B changes the loss of task A by
# $-\varepsilon\, g_A \cdot g_B$, to first order. So a step of B increases the loss of A where the cosine of the two gradients is
# negative.
#
# We take 32 training rows of each task, and the layers of the encoder, which all tasks share. The next cells print the cosines at
# two moments: at the end of the SST block, where the forgetting begins, and at the end of the `merged` run.

# %%
at_sst = new_model()
at_sst.load_state_dict(after_sst)
fixed = {name: collate(train_set[name], range(32)).to(device) for name in TASKS}


def layers_of(model):
    """The parameters of the layers of the encoder."""
    return list(model.encoder.encoder.parameters())


def gradient(model, name):
    """The task's loss on its fixed rows, and the gradient of the layers as one vector."""
    loss = model.loss(fixed[name]).total
    parts = torch.autograd.grad(loss, layers_of(model))
    return loss.item(), torch.cat([part.flatten() for part in parts])


# %%
moments = {"end of the SST block": at_sst.eval(), "end of merged": last["merged"].eval()}
cosines = {}
for when, one in moments.items():
    gradients = {name: gradient(one, name) for name in TASKS}
    cosines[when] = {}
    for a, b in itertools.combinations(TASKS, 2):
        cosine = torch.cosine_similarity(gradients[a][1], gradients[b][1], dim=0)
        cosines[when][f"{a} and {b}"] = cosine.item()
pd.DataFrame(cosines).T.round(3)

# %% [markdown]
# At the end of the SST block, the heads of QQP and SNLI still have their initial parameters. Where the cosine of a task with SST is
# positive, its first small steps would not harm SST, to first order.
#
# Does the gradient at this moment explain what the two later blocks do to SST? Let $\Delta$ be the change of the layers in these
# blocks. To first order, the loss of SST changes by $g_{SST} \cdot \Delta$. The next cell moves only the layers by $\Delta$ and
# measures the loss again.

# %%
old, g = gradient(at_sst, "sst")
start_layers = torch.nn.utils.parameters_to_vector(layers_of(at_sst)).detach()
end_layers = torch.nn.utils.parameters_to_vector(layers_of(last["sequential"])).detach()
torch.nn.utils.vector_to_parameters(end_layers, layers_of(at_sst))
with torch.no_grad():
    new = at_sst.loss(fixed["sst"]).total.item()
torch.nn.utils.vector_to_parameters(start_layers, layers_of(at_sst))
print(f"loss of SST on 32 rows: {old:.3f} after its block, {new:.3f} with the last layers")
print(f"change {new - old:+.3f}, to first order {(g @ (end_layers - start_layers)).item():+.3f}")

# %% [markdown]
# Compare the prediction with the change: the blocks move the layers too far for it. It uses the change $\Delta$ of all 80 steps. The
# cosines before these steps are near zero, so they did not predict the forgetting either. The next experiment makes a single small
# step instead, at the end of `merged`.
#
# **Predict before you run.** We make one gradient step of each task, so large that its own loss falls by one hundredth. How well
# does $-\varepsilon\, g_A \cdot g_B$ predict the change of the other losses?


# %%
model, layers = last["merged"], layers_of(last["merged"])
gradients = {name: gradient(model, name) for name in TASKS}


def step_along(name, scale):
    """Add scale times the gradient of a task to the layers."""
    with torch.no_grad():
        moved = torch.nn.utils.parameters_to_vector(layers) + scale * gradients[name][1]
        torch.nn.utils.vector_to_parameters(moved, layers)


# %%
changes, before = [], torch.nn.utils.parameters_to_vector(layers).detach().clone()
for one, (loss, g) in gradients.items():
    rate = 0.01 * loss / g.square().sum().item()
    step_along(one, -rate)
    for other, (old, h) in gradients.items():
        with torch.no_grad():
            new = model.loss(fixed[other]).total.item()
        changes.append([one, other, -rate * (g @ h).item(), new - old])
    torch.nn.utils.vector_to_parameters(before, layers)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
effect = pd.DataFrame(changes, columns=["step of", "loss of", "predicted", "measured"])
others = effect[effect["step of"] != effect["loss of"]]
agreement = np.corrcoef(others["predicted"], others["measured"])[0, 1]
signs = (np.sign(others["predicted"]) == np.sign(others["measured"])).sum()
print("Answer: for the other tasks, prediction and measurement have the correlation", end=" ")
print(f"{agreement:.2f} and the same sign in {signs} of {len(others)} cases.")
assert not size.effects or agreement > 0.8, "to first order, gradients say what a step does"

# %%
harmed = others[others["measured"] > 0]
pairs = [f"a step of {a} harms {b}" for a, b in zip(harmed["step of"], harmed["loss of"])]
print(", ".join(pairs) or "no step of a task harms another task")
columns = pd.MultiIndex.from_product([["predicted", "measured"], TASKS], names=[None, "loss of"])
effect.pivot(index="step of", columns="loss of").reindex(TASKS, columns=columns).round(6)

# %% [markdown]
# The table shows the changes of the losses. The diagonal belongs to the task that makes the step. A positive number elsewhere means
# that the step of one task increases the loss of another.
#
# These are plain gradient steps at one moment of one run. They do not explain the accuracy that SST loses in a whole block.
#
# ## 6 Twenty to one
#
# The training sets of the course have very different sizes. Quora is 16.6 times as large as SST and 23.4 times as large as STS.
# (The report says about 20. It does not print the size of its training set; 70 % of all 202,152 Quora pairs are about 141,500.)
# Most sampling runs of the report have 10 epochs of 3,000 steps with 8 rows each.
#
# **Predict before you run.** Which schedule shows every row of every set equally often?

# %%
course = {"sst": 8544, "quora": 141_500, "sts": 6040}


def passes(kind, sizes, epochs, steps, batch):
    """How often each row of every task is seen in a run, on average."""
    sampler = TaskSampler(kind, sizes=sizes, epochs=epochs, steps_per_epoch=steps)
    shares = pd.DataFrame([sampler.probabilities(e) for e in range(1, epochs + 1)]).mean()
    return epochs * steps * batch * shares / pd.Series(sizes)


kinds = ("proportional", "annealed", "sqrt", "uniform")
seen = pd.DataFrame({kind: passes(kind, course, 10, 3000, 8) for kind in kinds}).T
seen.loc["baseline: every row, ten times"] = 10.0

# %% tags=["answer"] jupyter={"outputs_hidden": true}
equal = [kind for kind in kinds if np.allclose(seen.loc[kind], seen.loc[kind, "quora"])]
print(f"Answer: {' and '.join(equal)}, with {seen.loc[equal[0], 'quora']:.2f} passes each.")

# %%
seen.round(2).rename_axis("passes over each set")

# %% [markdown]
# The uniform schedule shows little more
# than half of the rows of Quora once. Annealed sampling is between proportional and uniform.
#
# The last row matters for the comparison of the report's systems. Its baseline sees every row ten times. An annealed run of 3,000
# steps per epoch sees Quora little more than once. So the two systems differ in the *number* of updates, by a factor of 6.5, and
# not in the order alone.
#
# ### The effect on the scores
#
# Many seeds are needed for a comparison of schedules. So the next model is small. The encoder is frozen, and the tasks share one
# layer with 64 outputs. SST-2 (sentiment, two labels) has 600 rows. SST and CoLA (acceptable grammar, two labels) have 30 rows
# each.
#
# Every seed draws the 30 rows of a small task anew, from 120. The 600 rows of SST-2 and all dev rows stay the same. Each run has
# 300 steps with 16 rows.

# %%
from mmlkit.heads import sentence_vector

FEW = {"sst2": 600, "sst": 30, "cola": 30}
splits = {name: load_task(name, source, limit=limit, seed=seed) for name in FEW}
encoder = new_model().encoder.eval()


@torch.no_grad()
def vectors(split):
    """Sentence vectors [N, D] of the frozen encoder."""
    coded, found = encode(tokenizer, split, max_length=size.max_length), {}
    for chosen in plan(coded.lengths, 64):
        batch = collate(coded, chosen).to(device)
        out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        found |= dict(zip(chosen, sentence_vector(out, batch, size.pooling).float().cpu()))
    return torch.stack([found[i] for i in range(len(split))])


# %%
frozen = {}
for name, one in splits.items():
    chosen = np.random.default_rng(seed).permutation(len(one.train))[: min(600, 4 * FEW[name])]
    for part in (one.train.take(chosen), one.dev):
        frozen.setdefault(name, []).append((vectors(part), torch.as_tensor(part.labels)))
print({name: [list(x.shape) for x, _ in parts] for name, parts in frozen.items()})

# %%
from torch import nn


class SharedLayer(nn.Module):
    """One layer that all tasks share, and a linear head for each."""

    def __init__(self, width=64):
        super().__init__()
        self.layer = nn.Linear(encoder.config.hidden_size, width)
        labels = {name: one.task.num_labels for name, one in splits.items()}
        self.heads = nn.ModuleDict({name: nn.Linear(width, C) for name, C in labels.items()})

    def forward(self, name, x):
        return self.heads[name](nn.functional.gelu(self.layer(x)))


# %%
def new_small_model(seed):
    """A SharedLayer that is initialised with the seed."""
    with seeded(seed):
        return SharedLayer()


# %%
def small_run(kind, seed, steps=300, epochs=5):
    """The dev accuracy of every task after one run."""
    generator, model = np.random.default_rng(seed), new_small_model(seed)
    own = {name: generator.permutation(len(frozen[name][0][1]))[:N] for name, N in FEW.items()}
    options = {"epochs": epochs, "steps_per_epoch": steps // epochs, "seed": seed}
    sampler = TaskSampler(kind, sizes=FEW, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for name in [name for e in range(1, epochs + 1) for name in sampler.order(e)]:
        (x, y), chosen = frozen[name][0], generator.choice(own[name], size=16, replace=False)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(name, x[chosen]), y[chosen]).backward()
        optimizer.step()
    dev = {name: parts[1] for name, parts in frozen.items()}
    return {k: (model(k, x).argmax(1) == y).float().mean().item() for k, (x, y) in dev.items()}


# %% [markdown]
# **Predict before you run.** Which schedule is best for the small tasks, and which for the large one?

# %%
kinds, seeds = ("proportional", "annealed", "sqrt", "uniform", "sequential"), range(8)
runs = {(kind, one): small_run(kind, one) for kind in kinds for one in seeds}
runs = pd.DataFrame(runs).T.rename_axis(["schedule", "seed"])

# %% tags=["answer"] jupyter={"outputs_hidden": true}
best = runs.groupby("schedule").mean().idxmax()
print("Answer:", "; ".join(f"{name} ({FEW[name]} rows): {best[name]}" for name in FEW), end=".\n")
print("This is the order of the means. The next cells test whether the differences are certain.")

# %%
long = (
    runs.stack().rename_axis(["schedule", "seed", "task"]).groupby(["schedule", "task"], sort=False)
)
flat = long.agg(["mean", "std"]).reset_index()
title = f"{len(seeds)} seeds, mean and standard deviation"
ax = plots.spread(
    flat["mean"], flat["std"], flat["schedule"], flat["task"], xlabel="dev accuracy", title=title
)
ax.set_title(title, loc="left", pad=16)  # above the names of the dotted lines
for (name, (_, dev)), colour in zip(frozen.items(), plots.COLOURS):
    majority = np.bincount(dev[1]).max() / len(dev[1])
    ax.axvline(majority, color=colour, linestyle=":")
    ax.text(majority, 1.01, name, transform=ax.get_xaxis_transform(), ha="center", fontsize=8)
plt.show()

# %% [markdown]
# *`annealed` is 4.8 points above `proportional` on SST, and `uniform` 3.5 points on SST-2. Marks are means over eight seeds, bars are
# standard deviations, and dotted lines show the majority class of each task.*
#
# The next table compares each schedule with `proportional`, seed by seed. "holds" means that the whole interval is above zero, and
# "does not hold" that no part of it is. "cannot be told" means that zero lies inside.

# %%
from mmlcourse.studies import outcome

against = {}
for kind, name in itertools.product(kinds[1:], FEW):
    compared = paired_bootstrap(runs.loc[kind, name], runs.loc["proportional", name], level=0.99)
    interval = f"{compared.low:+.3f} to {compared.high:+.3f}"
    against[kind, name] = [round(compared.difference, 3), interval, outcome(compared)]
columns = ["minus proportional", "99 % interval", "better than proportional"]
verdicts = pd.DataFrame(against, index=columns).T
for word in ("holds", "does not hold"):
    those = verdicts.index[verdicts[columns[2]] == word]
    print(f"{word}:", ", ".join(f"{kind} on {name}" for kind, name in those) or "no row")
verdicts

# %%
for kind in ("proportional", "uniform"):
    times = passes(kind, FEW, 5, 60, 16)
    print(f"{kind}: passes over", ", ".join(f"{name} {n:.1f}" for name, n in times.items()))
small = [name for name in FEW if FEW[name] == 30]
gain = (runs.loc["uniform", small] - runs.loc["proportional", small]).mean(axis=1).mean()
assert not size.effects or gain > -0.01, "a task that hardly gets a step learns little"
print(f"the two small tasks, uniform minus proportional: {gain:+.3f} on average")

# %% [markdown]
# The table makes twelve comparisons at 99 %. With eight seeds the intervals are too narrow: about 2 % of them exclude zero by chance. So
# without any effect, one such table in five has a false verdict, and the two verdicts *holds* are weak evidence. The dev rows are the same
# for all seeds, so the intervals do not cover the choice of dev rows. The means of CoLA lie below its majority class (dotted) with every
# schedule, so its accuracy cannot show an effect. SST-2 lies only one to two standard errors of its dev rows (0.042) above its own.
#
# A proportional schedule gives each small task about 14 of 300 steps. A uniform schedule gives it 100 steps, and shows fewer rows
# of the large task. Still, `uniform` is better than `proportional` on SST-2 here. SST is also sentiment and may help, or fewer
# passes overfit less. This experiment cannot separate the two.
#
# The next figure shows the shares and the passes of a large and a small task.


# %%
def two_tasks(ratio, alpha):
    """Shares of the steps, and passes in 1,000 steps of 16, of a large task and one of 100 rows."""
    both = {f"large, {100 * ratio} rows": 100 * ratio, "small, 100 rows": 100}
    p = probabilities(both, alpha)
    times = {task: 16_000 * p[task] / N for task, N in both.items()}
    with plots.style():
        fig, (left, right) = plt.subplots(1, 2, figsize=(9, 1.9), layout="constrained", sharey=True)
    title = f"sizes {ratio} to 1, α = {alpha}"
    plots.bars(p, xlabel="share of the steps", title=title, ax=left)
    plots.bars(times, xlabel="passes in 1,000 steps of 16", ax=right)
    left.set_xlim(0, 1.12)
    right.set_xlim(0, 90)  # the most is 80, at 2 to 1 and alpha = 0
    left.invert_yaxis()  # two charts share the axis, and each has turned it round


start = {"ratio": 20, "alpha": 0.2}
sliders(two_tasks, start=start, ratio=[2, 5, 20, 100], alpha=[0, 0.2, 0.5, 0.8, 1.0])

# %% [markdown]
# *At the sizes 20 to 1 and α = 0.2, the large task has 65 % of the steps. A row of the small task is seen about eleven times as
# often as a row of the large one. The sliders change the ratio and the exponent.*
#
# ## 7 The published numbers
#
# The CS224N report prints these dev scores. The overall score (`Avg Dev Acc`) is the mean of both accuracies and $(r + 1) / 2$, with STS's
# correlation $r$. `recomputed` is this mean, from the scores beside it.

# %%
paper = published.tables("cs224n").query("table == 'Table 1'")
scores = paper.pivot(index="row", columns="column", values="printed")
scores["recomputed"] = paper.query("metric == 'overall'").set_index("row")["recomputed"]
systems = [name for name in scores.index if name.startswith("Task")]
shown = scores.loc[["Finetuned Baseline", *sorted(systems)]].dropna()
shown.round(3)

# %%
gain = scores.loc["Task Sampling 3k steps, lr: 1e-5"] - scores.loc["Finetuned Baseline"]
for column in ("Avg Dev Acc", "Sentiment Acc", "Para Acc", "STS Corr"):
    print(f"sampling minus one task after another, {column}: {gain[column]:+.3f}")

# %% [markdown]
# The published gain comes from SST alone. SST is the first of the three blocks, so forgetting would lower its accuracy. But the two runs
# also differ in their number of updates, and each is a single seed at its best dev epoch. So the table cannot separate these explanations.
# The row with the learning rate 1e-3 is left out, because it has no STS correlation.
#
# ### The question on real data, with an equal number of updates in all
#
# The recorded runs of `real-sampling` train MiniLM on a part of the course's files: 500 rows of SST, 2,000 of Quora and 350 of STS, with
# six seeds and 450 updates. Unlike above, the two sentences are packed (cross-encoder), and the pooling is [CLS].

# %%
import textwrap

from mmlcourse.batch import recorded_experiments
from mmlcourse.studies import recorded_cosine

found = [one for one in recorded_experiments() if one.experiment.name == "real-sampling"]
for one in found:
    main = one.frame[one.frame["metric"].isin(["accuracy", "pearson", "overall"])]
    samplers = ["annealed", "proportional", "sequential"]
    rows = main[main["system"].isin(samplers) & (main["seed"] < 6)]
    display(rows.pivot_table("value", "system", "on", aggfunc=["mean", "std"]).round(3))
    for claim, compared in one.compared:
        if claim["first"]["system"] in samplers:
            print(textwrap.fill(one.sentence(claim, compared), 100))
    print(f"sts: the cosine of the untrained encoder has {recorded_cosine('sts'):.3f}")

# %% [markdown]
# Annealed sampling is better than sequential training by one point of the overall score. But it gives STS 84 to 103 batches, and sequential
# training 55. Proportional sampling gives STS 44 to 66, so it has nearly the shares of sequential training and differs in the order. It is
# 0.7 points better, so the order alone helps. Whether annealing adds to that cannot be told (0.3). The published gain on SST is absent.
#
# **On STS all systems lie below the untrained cosine.** That is another system (bi-encoder, mean of the tokens). So these systems miss a
# baseline, but this does not show that training lowers the correlation.
#
# ## Exercises
#
# ### Exercise 1: the exponent for a ratio
#
# ● ● ○ · 10 minutes
#
# The largest task has to be drawn `ratio` times as often as the smallest one. Compute the exponent for this.


# %%
def my_exponent(sizes, ratio):
    """sizes: {task: N}. Returns alpha."""
    ...


_ = checks.check_exponent(my_exponent)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The probabilities of two tasks have the ratio $(N_a / N_b)^\alpha$. Set it equal to `ratio` and take the logarithm of both sides.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# largest, smallest = max(sizes.values()), min(sizes.values())
# return np.log(ratio) / np.log(largest / smallest)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: forgetting over a whole history
#
# ● ● ○ · 10 minutes
#
# Chaudhry et al. (2018) define forgetting as the best of the *earlier* measurements minus the last one. A task that still improves
# then has a negative number. Section 5 shows that a maximum is too large by chance. An error bar does not remove this bias. Write
# the definition for the history of all tasks at once.


# %%
def my_forgetting(history):
    """history [M, T]: a row per measurement, a column per task. Returns [T]."""
    ...


_ = checks.check_forgetting(my_forgetting)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `history[:-1]` is everything but the last row. `axis=0` takes the maximum of each column.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return history[:-1].max(axis=0) - history[-1]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: passes over each set
#
# ● ● ○ · 10 minutes
#
# A run has `steps` steps with `batch` rows each, and a fixed exponent. How often is a row of each task seen, on average?


# %%
def my_passes(sizes, alpha, steps, batch):
    """sizes: {task: N}. Returns {task: passes over its rows}."""
    ...


_ = checks.check_passes(my_passes)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A task with probability p gets p · steps · batch rows. They are distributed over its N rows.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# weights = {task: N**alpha for task, N in sizes.items()}
# total = sum(weights.values())
# return {task: steps * batch * weights[task] / total / N for task, N in sizes.items()}
# ```
#
# With `alpha=1` all tasks have the same number of passes.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *One task is never trained*: print `pd.Series(sampler.order(1)).value_counts()`. With $\alpha = 1$ a small task may get no step
#   in a short epoch.
# - *"The sampler is for 1 epochs ..."* from `fit`: give `TaskSampler` the same `epochs` as `fit`. The annealing depends on it.
#
# ## Takeaways
#
# - A power of the sizes gives the probabilities. Only ratios matter, and the exponent multiplies the logarithm of every ratio.
# - Chi-square tests the shares of the tasks. It does not test their order, and the order can change what a model forgets.
# - Trained in blocks, SST loses most of what it learned. In this run and in all five recorded seeds, the mixed order ends with the higher
#   mean accuracy.
# - Compare measurements at places that are fixed before the run. A maximum over a history is too large by chance.
# - A smaller exponent gives small sets more passes and large sets fewer. State the passes before you compare two schedules.
#
# ## References
#
# Stickland and Murray (2019), *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*, ICML. Hu
# and Xiao, *Multitask BERT*, CS224N default project report. Liu et al. (2019), *Multi-Task Deep Neural Networks for Natural
# Language Understanding*, ACL. Chaudhry et al. (2018), *Riemannian Walk for Incremental Learning: Understanding Forgetting and
# Intransigence*, ECCV.
#
# Before: [09 A new domain with few labels](09_domain_adaptation.ipynb). Next: [11 Projected attention layers](11_pals.ipynb).
