# %% [markdown]
# # 06 Reading published tables
#
# Notebook 05 found no gain of MML on sister sets, but the paper prints one. **How much of the printed gain is left when the tables are
# recomputed, and how certain is the rest?** Some numbers in a table follow from others in it, such as a mean. You will recompute them, and
# then draw the paper's performance profile in two ways.
#
# | | |
# |---|---|
# | time | 1 hour to read and solve (estimated) · fast: under 1 min on two CPU cores · colab and paper: the same, nothing is trained here |
# | memory | 1 GB |
# | read first | [05 On sets it was not trained on](05_cross_dataset.ipynb) |
# | papers | Malkiel and Wolf 2021 (MML; "v1" is its first arXiv version, "v2" the EACL version), Tables 1 to 5, Fig. 3 · Dolan and Moré 2002 |

# %% [markdown]
# ## You will be able to
#
# - recompute a derived number, and decide whether rounding explains a difference,
# - write a performance profile in one line, and say which reading of it you use,
# - measure how much one row contributes to a mean,
# - say which part of a published claim remains, and how uncertain it is.
#
# ![A row of accuracies of MML and the same row of BERT are divided set by set. The mean of the three ratios minus one is the
# recomputed improvement. Is the printed improvement inside or outside the range that rounding allows? Outside of it, the cell gets a
# frame.](images/06_tables.svg)

# %% tags=["parameters"]
profile = "fast"  # nothing is trained here, so all profiles are the same
seed = 0
output_dir = "../runs"

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

open_notebook("06", profile, output_dir)

# %% tags=["setup"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mmlcourse import published, studies
from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded
from mmlcourse.studies import CATEGORIES, METHODS, improvements, performance_profile

print(f"mmlkit {mmlkit.__version__}; {len(published.tables()):,} printed numbers of five documents")

# %% [markdown]
# ## 1 The tables as data
#
# Tables 4 and 5 of the paper hold six methods (named below) on seven training sets. Each row is one trained model, evaluated on every set of its category.
# Notebook 05 explains the protocol and the *improvement*, the mean of the ratios to BERT over the other sets, minus one.
#
# **Predict before you run.** QNLI asks whether a sentence answers a question. It has two labels, equally often. What accuracy on QNLI do
# models reach that were trained on RTE, MNLI or SNLI?

# %% tags=["setup"]
# @title Set-up: the tables, and the names of sets and methods
cells = published.cross_dataset()
LABELS = dict(rte="RTE", mnli="MNLI", qnli="QNLI", snli="SNLI")
LABELS |= dict(qqp="QQP", mrpc="MRPC", stsb_star="STS-B*")
WORDS = {"mml": "MML", "bert": "BERT"}  # the other methods keep their names
SETS = [name for sets in CATEGORIES.values() for name in sets]
theirs = cells.query("metric == 'accuracy'").rename(columns={"printed": "accuracy"})
theirs = theirs[["method", "trained_on", "evaluated_on", "split", "accuracy"]]
away = theirs[theirs["trained_on"] != theirs["evaluated_on"]]

# %% tags=["answer"]
with folded():
    on_qnli = away.loc[away["evaluated_on"] == "qnli", "accuracy"]
    rest = away.loc[away["evaluated_on"] != "qnli", "accuracy"]
    print(f"The median is {on_qnli.median():.1f} %, the accuracy of guessing:")
    print(f"{on_qnli.between(48, 53).mean():.0%} of the values lie between 48 and 53 %.")
    print(f"On the other sets the median is {rest.median():.1f} %.")

# %% [markdown]
# The ratio of two guessing accuracies says nothing about learning. Yet QNLI is one of the three other sets of RTE, MNLI and SNLI, so it
# contributes one third of their means. Look at the level of the accuracies before you read an improvement.
#
# Here are the four rows of MML. A row is a training set, and it ends with its improvement over the row of BERT (blue: QNLI), without its own
# set (grey). The footer has the same mean down a column (orange: MNLI).

# %% tags=["setup"]
# @title Set-up: the table of MML
inference = CATEGORIES["inference"]
of_mml = cells.query("method == 'mml' and split == 'dev'")
of_mml = of_mml.fillna({"trained_on": "footer", "evaluated_on": "improvement, %"})
block = of_mml.pivot(index="trained_on", columns="evaluated_on", values="printed")
block = block.loc[[*inference, "footer"], [*inference, "improvement, %"]]
colour = pd.DataFrame("", block.index, block.columns)
colour.loc["qnli"] = "background-color: #cfe6f5; color: black"  # a row
colour["mnli"] = "background-color: #f7dccb; color: black"  # a column
for name in inference:
    colour.loc[name, name] = "color: #999999"  # the own set
for one in (block, colour):
    one.index, one.columns = [[LABELS.get(k, k) for k in axis] for axis in one.axes]
block.style.format("{:.2f}", na_rep="").set_uuid("block").apply(lambda _: colour, axis=None)

# %% [markdown]
# *MML in Table 4, dev split, in percent; a column is the set that the models are evaluated on.*
#
# Two other methods have orthogonal heads without pruning: `mv-5` has five heads, `mv-m` (the paper's MV-1024) 1,024. `bert-drop` has dropout
# before its head (the paper does not say how the dropout of BERT itself is set), and `bert-ensemble` many heads without the orthogonality term.
# The tables hold 36 experiments on another set for each of the six methods. These are the ratios of MML to BERT:

# %%
of_cell = away.pivot(
    index=["split", "trained_on", "evaluated_on"], columns="method", values="accuracy"
)
each = 100 * (of_cell["mml"] / of_cell["bert"] - 1)  # percent, a row per experiment

# %% [markdown]
# **Predict before you run.** After training on which of the seven sets does MML gain most on other sets?

# %% tags=["answer"]
with folded():
    of_rte = each.index.isin(["rte"], "trained_on")
    on_qnli = each.index.isin(["qnli"], "evaluated_on")
    for name, part in {
        "RTE, the smallest set, on MNLI and SNLI": each[of_rte & ~on_qnli],
        "on QNLI, where models guess": each[on_qnli],
        "all others": each[~of_rte & ~on_qnli],
    }.items():
        print(f"{name}: {part.min():+.1f} to {part.max():+.1f} %")
    named = {name: [LABELS[one] for one in sets] for name, sets in CATEGORIES.items()}
    title = "MML against BERT, published accuracies"
    plots.improvement_panels(each.rename(index=LABELS), named, title=title)
    plt.show()

# %% [markdown]
# ## 2 Printed against recomputed
#
# Each printed improvement follows from accuracies in the same table, and the mechanism is one line. It recomputes the MML model that was trained
# on SNLI, which the paper prints as -0.26 %.


# %%
def recompute(mml, bert):
    """The improvement over BERT in percent, from the accuracies on the other sets."""
    return 100 * ((mml / bert).mean() - 1)


of_snli = theirs.query("trained_on == 'snli' and split == 'dev' and evaluated_on != 'snli'")
pair = of_snli.pivot(index="evaluated_on", columns="method", values="accuracy")[["mml", "bert"]]
print(f"recomputed {recompute(pair['mml'], pair['bert']):.2f} %, printed -0.26 %")
pair.rename(index=LABELS, columns=WORDS).rename_axis(index=None, columns=None)

# %% [markdown]
# Every accuracy is known to half of its last digit: 69.31 may be any number from 69.305 to 69.315. The improvement is lowest when all
# accuracies of MML are lowest and all of BERT are highest, and it is highest in the opposite case.
#
# **Predict before you run.** Can rounding explain the difference?

# %% tags=["answer"]
with folded():
    lowest, highest = (
        recompute(pair["mml"] + side, pair["bert"] - side) for side in (-0.005, 0.005)
    )
    print(f"No. Rounding allows {lowest:.3f} to {highest:.3f} %, and -0.26 % is outside.")

# %% [markdown]
# But the paper *cuts* digits where others round. So a printed 69.31 may stand for anything from $69.305$ (rounded up) to $69.32$ (cut), and a
# printed improvement for anything less than one unit of its last digit away:


# %%
def possible(printed, mml, bert, unit=0.01):
    """Can rounding, or cutting digits, lead from these accuracies to the printed improvement?"""
    lowest = recompute(mml - 0.005, bert + 0.01) - unit
    highest = recompute(mml + 0.01, bert - 0.005) + unit
    return lowest <= printed <= highest


print("Is -0.26 % possible?", bool(possible(-0.26, pair["mml"], pair["bert"])))

# %% [markdown]
# So at least one of the seven numbers is a misprint. The test alone does not show which one (exercise 2).
#
# The next cell applies this test to every improvement. At the end of a row it follows from the accuracies on the *other* sets. In a footer it
# follows from the accuracies in the column above it, without the model of that set. One improvement, 10.4, is printed with a single decimal,
# so its unit is 0.1.
#
# **Predict before you run.** The two tables print 140 improvements, 28 for each of five methods: 14 at the ends of rows and 14 in
# footers. How many of them cannot be right, and which method has most of them?


# %%
def row_of(one):
    """The accuracies of a training set on other sets: evaluated sets x methods."""
    part = away[(away["trained_on"] == one["trained_on"]) & (away["split"] == one["split"])]
    return part.pivot(index="evaluated_on", columns="method", values="accuracy")


def column_of(one):
    """The accuracies of other models on an evaluated set: training sets x methods."""
    part = away[(away["evaluated_on"] == one["evaluated_on"]) & (away["split"] == one["split"])]
    return part.pivot(index="trained_on", columns="method", values="accuracy")


# %%
def agrees(one):
    """Whether a printed improvement, a row of the table `said`, is possible."""
    part = column_of(one) if pd.isna(one["trained_on"]) else row_of(one)  # a footer has no row
    unit = 0.1 if one["printed"] == 10.4 else 0.01
    return possible(one["printed"], part[one["method"]], part["bert"], unit)


said = cells.query("metric == 'improvement'").copy()  # all printed improvements
said["wrong"] = ~said.apply(agrees, axis=1)

# %% tags=["setup"]
# @title Set-up: counts the wrong improvements
wrong = said.groupby("method")["wrong"].agg(["sum", "count"]).loc[list(METHODS[1:])]
wrong.columns = ["cannot be right", "printed"]
wrong = wrong.rename(index=WORDS).rename_axis("")

# %% tags=["answer"]
with folded():
    number, most = wrong["cannot be right"], wrong["cannot be right"].idxmax()
    print(f"{number.sum()} of {len(said)}; most for {most}, with {number[most]} of 28.")
    display(wrong.style.set_uuid("wrong"))

# %% tags=["setup"]
# @title Set-up: draws the improvements at the ends of rows
ends = said[said["evaluated_on"].isna()].drop(columns="recomputed")
ends = ends.merge(improvements(theirs), on=["trained_on", "split", "method"])


def square(column, split):
    """A method in each row, a training set in each column."""
    part = ends[ends["split"] == split].pivot(index="method", columns="trained_on", values=column)
    return part.loc[list(METHODS[1:]), SETS].rename(index=WORDS, columns=LABELS)


def draw_ends(split):
    """The improvements at the ends of rows, as printed and recomputed."""
    tables = {"printed": square("printed", split), "recomputed": square("improvement", split)}
    marked = dict.fromkeys(tables, square("wrong", split).astype(bool))
    names = dict(xlabel="trained on", title=f"improvement over BERT, {split} split")
    axes = plots.improvement_grid(tables, marked=marked, limit=10, digits=2, **names)
    for text in (text for ax in axes.flat for text in ax.texts):
        text.set_fontsize(9)


# %% [markdown]
# The next figure frames these cells at the ends of rows. **Move the slider** from the dev to the train split.

# %%
plots.sliders(draw_ends, split=["dev", "train"])

# %% [markdown]
# *Framed: cells whose improvement disagrees with its accuracies. On both splits all seven cells of `bert-ensemble` are framed, 13 of these 14
# with a changed sign. The other methods have fewer.*
#
# Of the 14 improvements of MML, one disagrees. Table 2 prints -0.36 % for this one, which is inside the range, so most likely the improvement
# itself is the misprint.
#
# The other 42 of the 43 wrong numbers belong to the methods that MML is compared with, so the comparison has to be repeated with recomputed
# numbers. From here on, we take the printed accuracies as correct.
#
# `published.misprints()` makes such tests for all tables of the five documents of this course. Of the 53 wrong numbers that it finds, 51 are in
# the two versions of the MML paper. (The paper's algorithm also has four mistakes and two oddities, which notebook 04 lists.)
#
# ### Are numbers equal that should differ?
#
# An ensemble of heads is another model than BERT, so its accuracies should differ from those of BERT.
#
# **Predict before you run.** On their own sets, the tables print 14 accuracies of each method (seven sets, train and dev). In how many does
# `bert-ensemble` agree with BERT to the last digit?

# %% tags=["answer"]
with folded():
    own = theirs[theirs["trained_on"] == theirs["evaluated_on"]].replace({"trained_on": LABELS})
    diagonal = own.pivot(index=["trained_on", "split"], columns="method", values="accuracy")
    equal = diagonal.drop(columns="bert").eq(diagonal["bert"], axis=0)
    print(f"In {equal['bert-ensemble'].sum()} of 14; the other methods:", end=" ")
    others = equal.sum().drop("bert-ensemble").items()
    print(", ".join(f"{WORDS.get(name, name)} {number}" for name, number in others))
    pairs = diagonal.loc[equal["bert-ensemble"], "bert"]
    print(", ".join(f"{on} {split} {value:.2f}" for (on, split), value in pairs.items()))

# %% [markdown]
# Two models at 100 % are equal anyway (STS-B\*, train), and chance may explain one equal pair on a dev split of a few hundred rows. It hardly
# explains RTE and MNLI, which agree on both splits. This is a hint and no proof. But it concerns the method whose printed improvements
# all disagree with its accuracies, so its recomputed gain is not reliable either.
#
# Another equality needs no misprint: MML and `mv-m`, trained on RTE, have the same accuracy in all eight cells. Table 1 of the paper explains
# it. On RTE, MML kept all 1,024 heads, so the two models are one, and the gain on RTE is no evidence for pruning.
#
# ## 3 The performance profile
#
# The paper's second evidence for the gain is a figure. Its Fig. 3 shows 36 experiments and six methods, after Dolan and Moré (2002). In every
# experiment, divide
# the error of each method by the lowest error of all methods. Then
#
# $$\rho_m(\tau) = \text{share of experiments in which the error of } m \text{ is at most } \tau \text{ times the lowest error}$$
#
# At $\tau = 1$ the profile is the share of experiments that a method wins. A profile that rises fast belongs to a method that is
# close to the best where it does not win. The next cell has the errors of three methods in three experiments.

# %%
small = pd.DataFrame(
    {"A": [10, 20, 40], "B": [12, 20, 30], "C": [15, 30, 33]},
    index=["experiment 1", "experiment 2", "experiment 3"],
)
small

# %% [markdown]
# **Predict before you run.** Divide each row by its lowest error. What are $\rho(1)$ and $\rho(1.2)$ of each method?
#
# <details><summary>Answer</summary>
#
# | | A | B | C |
# |---|---|---|---|
# | $\rho(1)$ | 2/3 | 2/3 | 0 |
# | $\rho(1.2)$ | 2/3 | 1 | 1/3 |
#
# In experiment 2, A and B are equally good, and both count. So the shares at $\tau = 1$ may add up to more than 1.
#
# </details>
#
# The definition is one line of numpy:


# %%
def rho(errors, tau):
    """errors: experiments x methods. The share of experiments of each method, for one tau."""
    return (errors <= tau * errors.min(axis=1, keepdims=True) + 1e-9).mean(axis=0)


# %% [markdown]
# **Checkpoint.** The library's `performance_profile` gives the same shares, and so does the answer above:

# %%
by_hand = [rho(small.to_numpy(), tau) for tau in (1.0, 1.2)]
np.testing.assert_allclose(by_hand, performance_profile(small, [1.0, 1.2]))
np.testing.assert_allclose(by_hand, [[2 / 3, 2 / 3, 0], [2 / 3, 1, 1 / 3]])
print("by hand, by our line and by the library: the same shares")

# %% [markdown]
# ### Two profiles
#
# The paper describes its figure in two ways. The caption speaks of *error*: "less than the threshold τ times the minimal error".
# (With *less than*, no method would count at $\tau = 1$, so we take *at most*.) The text speaks of performance "at least as high
# [as] a constant times the best result". That is *accuracy*, and the constant is $1/\tau$. We draw both.


# %%
def rho_of_accuracy(accuracies, tau):
    """The other reading: accuracy at least as high as the best accuracy divided by tau."""
    return (accuracies >= accuracies.max(axis=1, keepdims=True) / tau - 1e-9).mean(axis=0)


# %% tags=["setup"]
# @title Set-up: the profile of every method
wide = of_cell[list(METHODS)]


def shares(rule, table, most):
    """The profile of every method, at 500 factors from 1 to the largest."""
    taus = np.linspace(1, most, 501)
    found = [rule(table.to_numpy(), tau) for tau in taus]
    return pd.DataFrame(found, pd.Index(taus, name="tau"), table.columns)


def behind(steps):
    """The factors at which another line lies above MML's."""
    return steps.index[steps["mml"] < steps.max(axis=1)]


# %% tags=["setup"]
# @title Set-up: both profiles, and the looks of their lines
profiles = {"by error": shares(rho, 100 - wide, 1.5)}
profiles["by accuracy"] = shares(rho_of_accuracy, wide, 1.15)
blue, orange, green = plots.COLOURS[:3]  # as in exercise 4
seen = {"mml": dict(color=orange, lw=2.4), "bert": dict(color=blue, ls="--")}
seen |= {"mv-5": dict(color=green, ls="-.", lw=1.8)}
grey = dict(color="0.7", lw=1.2, label="other methods")


# %% tags=["setup"]
# @title Set-up: draws the lines of a profile
def leaders(steps, tau):
    """Who has the largest share at a factor, and this share."""
    at = steps.loc[: tau + 1e-9].iloc[-1]
    first = [WORDS.get(name, name) for name in at.index[at > at.max() - 1e-9]]
    return f"highest at {tau}:\n{', '.join(first)}: {at.max():.0%}"


def draw_lines(ax, steps, tau):
    if tau:
        ax.axvline(tau, color="black", lw=1)
        ax.text(0.97, 0.06, leaders(steps, tau), ha="right", transform=ax.transAxes)
    for method in [*METHODS[3:], *seen]:
        look = {"label": WORDS.get(method, method), **seen.get(method, grey)}
        ax.plot(steps.index, steps[method], drawstyle="steps-post", **look)
    most = steps.index[-1] - 1
    ax.set_xlim(round(1 - 0.05 * most, 6), round(1 + 1.05 * most, 6))  # the same for every tau


# %% tags=["setup"]
# @title Set-up: draws both profiles
def draw_profiles(tau=None):
    """MML, BERT and mv-5 in colour, the other methods in grey, and where MML is behind."""
    with plots.common.panels(1, 2, (10.5, 4), sharey=True) as (axes,):
        for ax, (name, steps) in zip(axes, profiles.items()):
            ax.axvspan(*behind(steps)[[0, -1]], color="0.88", zorder=0, label="MML is behind")
            draw_lines(ax, steps, tau)
            ax.set(xlabel=f"factor τ {name}", title=f"published, {name}", ylim=(0, 1.03))
        axes[0].set_ylabel("share of experiments")
        told = dict(zip(*axes[0].get_legend_handles_labels()[::-1]))  # each name once
        axes[0].figure.legend(told.values(), told, loc="outside lower center", ncols=5)


# %% [markdown]
# **Predict before you run.** Is MML's line on top everywhere by error? And by accuracy?

# %% tags=["answer"]
with folded():
    print("In neither. Another line lies above MML's")
    for name, steps in profiles.items():
        late, end = behind(steps), steps.index[-1]
        print(f"{name}: at factors from {late[0]:.2f} to {late[-1]:.2f} (drawn: 1 to {end:.2f}).")
    wins = profiles["by error"].iloc[0]
    print(f"MML wins {wins['mml']:.0%} of the experiments, mv-5 {wins['mv-5']:.0%}, BERT none.")
    draw_profiles()
    plt.show()
    print("Grey: factors at which another method is higher than MML.")

# %% [markdown]
# By error, MML is behind only in a narrow strip; by accuracy, `mv-5` is higher at a wide range of factors. **Move the slider:** which method is
# highest at a factor of 1.08, by error and by accuracy?

# %%
plots.sliders(draw_profiles, tau=[1.0, 1.02, 1.05, 1.08, 1.1])

# %% [markdown]
# <details><summary>Answer</summary>
#
# MML by error, and `mv-5` by accuracy. The same factor is a small step on errors, and a large one on accuracies.
#
# </details>
#
# Which experiments decide it? Where the best error is 50 %, as on QNLI, a factor of 1.05 on the error allows 2.5 points more error. Where it is
# 9 %, as on STS-B\*, the same factor allows less than half a point. A factor on the accuracy allows about as many points everywhere, so by
# accuracy QNLI counts more. The two experiments where MML is furthest behind are the model of RTE on QNLI (train and dev).
#
# **Predict before you run.** If these two of the 36 experiments are left out, at which factors is MML still behind by accuracy?

# %% tags=["answer"]
with folded():
    two = (wide.index.get_level_values("trained_on") == "rte") & (
        wide.index.get_level_values("evaluated_on") == "qnli"
    )
    late = behind(shares(rho_of_accuracy, wide[~two], 1.15))
    print("At none." if not len(late) else f"From {late[0]:.2f} to {late[-1]:.2f}.")
    print("So two experiments decide it: RTE on QNLI, where mv-5 does better than guessing,")
    print("and MML does not. Their accuracies:")
    table = wide[two].rename(columns=WORDS).droplevel(["trained_on", "evaluated_on"])
    table = table.rename_axis(index=None, columns=None).style.set_uuid("two")
    display(table.format("{:.2f}"))

# %% [markdown]
# A profile shows no uncertainty. Its 36 experiments are not independent, because each method has seven models, and one model is evaluated in
# all experiments of its training set. A profile also does not show how large a difference is in points.
#
# It also divides by the best of *all* methods in the figure, so the other lines change if one method is left out (exercise 4).
#
# ## 4 What is left of the claim
#
# The paper sums up with the mean over the seven training sets.
#
# **Predict before you run.** Which method's mean changes most when it is recomputed? Does MML keep the highest mean on both splits?

# %% tags=["answer"]
with folded():
    means = ends.pivot_table(index="method", columns="split", values=["printed", "improvement"])
    means = means.rename(columns={"improvement": "recomputed"}).loc[list(METHODS[1:])]
    means = means[[(a, b) for a in ("printed", "recomputed") for b in ("train", "dev")]]
    means = means.rename(index=WORDS)
    change = (means["recomputed"] - means["printed"]).abs().max(axis=1)
    best = means["recomputed"].idxmax()
    print(f"{change.idxmax()}, whose printed loss becomes a small gain.")
    where = (
        " on both splits" if best["train"] == best["dev"] else f" on train, {best['dev']} on dev"
    )
    print(f"{best['train']} has the highest recomputed mean{where}.")
    table = means.rename_axis(index=None, columns=[None, None]).style.set_uuid("means")
    display(table.format("{:.2f}"))

# %% [markdown]
# How uncertain is the lead of MML? The paper gives no spread over seeds, so the only spread is the one over the seven training sets. For each
# set, the lead is MML's improvement minus that of the other method, the mean of train and dev.


# %%
def interval(values):
    """Their mean with a 95 % interval of Student's t, for six or seven values."""
    mean, half = values.mean(), {6: 2.571, 7: 2.447}[len(values)] * values.sem()
    return studies.Comparison(mean, mean - half, mean + half, 0.95, len(values))


# %%
def lead_by_set(part):
    """MML's improvement minus that of the other methods, a row per training set."""
    table = improvements(part).groupby(["trained_on", "method"])["improvement"].mean().unstack()
    lead = table.rsub(table["mml"], axis=0).drop(columns="mml")
    return lead.assign(bert=table["mml"])  # MML's improvement is its lead over BERT


# %% tags=["setup"]
# @title Set-up: the leads of the paper and of our runs
by_set = lead_by_set(theirs)[["bert", *METHODS[2:]]]
of_seed = improvements(studies.recorded_protocol()).query("method == 'mml'")
of_seed = of_seed.groupby("seed")["improvement"].mean()
ours = interval(of_seed)
group = "the paper's tables, recomputed (seven training sets)"
leads = [(group, f"MML minus {WORDS.get(name, name)}", interval(by_set[name])) for name in by_set]
leads.append(("our runs (six seeds)", "MML minus BERT", ours))

# %% [markdown]
# **Predict before you run.** The lead of MML is compared with five methods, BERT among them. How many of the five intervals exclude zero?

# %% tags=["answer"]
with folded():
    told = [lead for *_, lead in leads[:-1]]
    print(f"{sum(one.low > 0 for one in told)} of 5. The lead over BERT is", end=" ")
    print(f"{told[0].difference:.1f} % ({told[0].low:.1f} to {told[0].high:.1f});", end=" ")
    print(f"in our runs {ours.difference:.1f} % ({ours.low:.1f} to {ours.high:.1f}).")
    ax = plots.forest(leads, xlabel="lead of MML, in percent of BERT's accuracy")
    for text in ax.get_legend().get_texts():
        text.set_text(text.get_text().replace("undecided", "interval includes zero"))
    plt.show()
    print(
        "95 % intervals. Over sets: would another set agree? Over seeds: would another run agree?"
    )

# %% [markdown]
# **The answer.** Recomputed, MML keeps the highest mean, 3.2 % above BERT, but no interval over the seven training sets excludes zero. In the
# profile MML wins 39 % of the experiments; by accuracy, its place hangs on two of 36. And the lead over `bert-ensemble` rests on accuracies that
# are doubtful themselves (section 2).
#
# The intervals treat the seven models of a method as independent, although all are evaluated on the same sets. In our runs the mean is -0.2 % of
# BERT's accuracy (-0.3 points in notebook 05, another mean of the same runs). It is undecided whether MML or BERT is better. More seeds of the
# paper's setting would be needed to decide.
#
# Does this depend on single sets? Leave out the models trained on RTE (the smallest set, 2,490 training rows), those trained on QNLI, or the
# columns of QNLI, where models guess.
#
# **Predict before you run.** In which of these three cases do all five leads shrink?

# %% tags=["setup"]
# @title Set-up: the leads without some sets
others_of_qnli = lead_by_set(theirs[theirs["evaluated_on"] != "qnli"])
parts = {
    "all sets": by_set,
    "not trained on RTE": by_set.drop("rte"),
    "not trained on QNLI": by_set.drop("qnli"),
    "not evaluated on QNLI": others_of_qnli,
}


# %% tags=["setup"]
# @title Set-up: draws the leads without some sets
def draw_parts():
    """MML's lead over each method: four means with their intervals."""
    names = [f"MML minus {WORDS.get(method, method)}" for method in by_set]
    with plots.common.panel(size=(8, 3.8), xlabel="lead of MML, %", ylim=(4.5, -0.5)) as ax:
        for k, (part, table) in enumerate(parts.items()):
            found, at = [interval(table[method]) for method in by_set], np.arange(5) + k / 6 - 0.25
            ends = np.array([(one.low, one.high) for one in found]).T
            ax.hlines(at, *ends, color=plots.COLOURS[k])
            middle = [one.difference for one in found]
            ax.plot(middle, at, plots.MARKERS[k], color=plots.COLOURS[k], label=part)
        ax.axvline(0, **plots.common.DOTTED)
        ax.set_yticks(range(5), names)
        ax.legend(**plots.common.OUTSIDE)


# %% tags=["answer"]
with folded():
    for name, table in list(parts.items())[1:]:
        fewer = sum(table[method].mean() < by_set[method].mean() for method in by_set)
        clear = sum(interval(table[method]).low > 0 for method in by_set)
        print(f"{name}: {fewer} of 5 leads shrink; {clear} of 5 intervals exclude zero")
    draw_parts()
    plt.show()

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: a profile in points
#
# ● ● ○ · 15 minutes
#
# A factor means another number of points on every set. Change the profile: a method counts in an experiment if its error is at most `points`
# above the lowest error. Predict first: is MML still behind another method somewhere between 0 and 10 points?


# %%
def my_profile(errors, points):
    """errors: [E,M] in percent, a row per experiment. Returns the share of each method, [M]."""
    ...


_ = checks.check_profile(my_profile)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `errors.min(axis=1, keepdims=True)` is [E,1], and numpy compares it with every column.
#
# </details>

# %% tags=["answer"]
with folded("Solution: the published tables"):
    # `shares` counts factors from 1, so a factor of 1 + p stands for p points here
    by_points = lambda a, tau: (a <= a.min(axis=1, keepdims=True) + tau - 1 + 1e-9).mean(axis=0)
    steps = shares(by_points, 100 - wide, 11)
    late = behind(steps) - 1
    print(f"MML is behind between {late[0]:.1f} and {late[-1]:.1f} points.")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# return (errors <= errors.min(axis=1, keepdims=True) + points).mean(axis=0)
# ```
#
# In points, MML is on top up to five points. It is behind only where its two experiments of RTE on QNLI do not count yet.
#
# </details>

# %% [markdown]
# ### Exercise 2: find the misprint
#
# ● ● ● · 25 minutes
#
# Suppose that a printed improvement is right, and that one digit of one accuracy of *ours* is wrong. For which of them can one changed digit
# make the recomputed improvement agree with the printed one, to half a hundredth? Predict first: how many of the three accuracies of MML
# after SNLI could be the misprint behind -0.26 %?


# %%
def my_suspects(ours, baseline, printed):
    """Two lists of percents with two decimals. Returns 1 (can be it) or 0 for each of `ours`."""
    ...


_ = checks.check_suspects(my_suspects)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `f"{value:.2f}"` is the printed text. Replace each of its digits by each other digit, and recompute.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# found, b = [0] * len(ours), np.array(baseline)
# for i, text in enumerate(f"{value:.2f}" for value in ours):
#     for k in range(len(text)):
#         for digit in "0123456789" if text[k] != "." else "":
#             a = np.array(ours)
#             a[i] = float(text[:k] + digit + text[k + 1 :])
#             improvement = 100 * ((a / b).mean() - 1)
#             found[i] |= int(abs(improvement - printed) <= 0.005)
# return found
# ```
#
# Two: `my_suspects([69.31, 76.37, 50.32], [70.03, 75.79, 50.72], -0.26)` is
# `[1, 1, 0]`, because 69.51 on RTE or 76.57 on MNLI would agree. So the
# test cannot say which number is wrong; only another source can, here Table 2.
#
# </details>

# %% [markdown]
# ### Exercise 3: leave out an evaluated set
#
# ● ● ○ · 15 minutes
#
# `lead_by_set(part)` has the leads of MML that a part of the accuracies gives, a row per training set. For each set, leave out the accuracies
# *on* it, and compute the lead over BERT with its interval. Predict first: which set changes the lead most, and does an interval exclude
# zero?

# %%
my_leads = {}  # {evaluated set that is left out: interval of the lead over BERT}

for name, one in my_leads.items():
    print(f"without {LABELS[name]}: {one.difference:.1f} ({one.low:.1f} to {one.high:.1f})")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `theirs[theirs["evaluated_on"] != name]` leaves one set out, and `interval` takes the column "bert" of the leads.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# for name in SETS:
#     my_leads[name] = interval(lead_by_set(theirs[theirs["evaluated_on"] != name])["bert"])
# ```
#
# QNLI changes it most, from 3.2 to 4.2. One of seven intervals excludes zero: 0.1 to 5.1 without SNLI. A paper that reported only this choice
# would be right about its numbers and wrong about its evidence.
#
# </details>

# %% [markdown]
# ### Exercise 4: leave out a method
#
# ● ○ ○ · 10 minutes
#
# A profile divides by the best of all methods in the figure. If one is left out, the order of the others can change (Gould and Scott 2016).
# Predict first: which method leads when MML is left out? Then move the sliders.


# %%
def without(method, splits):
    """The published profile by error without one method, on some of the splits."""
    part = wide if splits == "both" else wide.xs(splits, level="split", drop_level=False)
    part = 100 - part[[name for name in METHODS if WORDS.get(name, name) != method]]
    left_out = "all methods" if method == "none" else f"without {method}"
    title = f"{len(part)} experiments, {left_out}"
    ax = plots.profile(shares(rho, part, 1.5), title=title)
    for text in ax.get_legend().get_texts():
        text.set_text(WORDS.get(text.get_text(), text.get_text()))


choices = dict(method=["none", "MML", *METHODS[2:]], splits=["both", "train", "dev"])
plots.sliders(without, start={"method": "none"}, **choices)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Read the figure at three factors: 1.0, 1.06 and 1.15.
#
# </details>
#
# <details><summary>Solution</summary>
#
# No method leads at every factor: `bert-ensemble` leads at 1.0, `mv-5` at 1.06 and `bert-drop` at 1.15. So "best in most experiments" is a
# statement about all methods in the figure, and not a property of one method.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *"has no column 'method'"*: a profile needs the long table, with a row for each method, training set, evaluated set and split.
# - *A profile is 1 everywhere*: errors in percent and accuracies were mixed up. The error is 100 minus the accuracy.
#
# ## Takeaways
#
# - The printed gain of MML on sister sets, about 3 %, stays the same when it is recomputed. But over seven training sets no interval of its
#   leads excludes zero, and our runs show no gain.
# - Recompute the derived numbers of a table before you use them, and before you publish your own. A difference counts only when no rounding
#   of the parts explains it.
# - A performance profile depends on its measure, on the methods compared, and on experiments that are not independent.
#
# ## References
#
# Malkiel and Wolf (2021), *Maximal Multiverse Learning for Promoting Cross-Task Generalization of Fine-Tuned Language Models*,
# EACL. Dolan and Moré (2002), *Benchmarking Optimization Software with Performance Profiles*, Mathematical Programming. Gould and
# Scott (2016), *A Note on Performance Profiles for Benchmarking Software*, ACM Transactions on Mathematical Software.
#
# Before: [05 On sets it was not trained on](05_cross_dataset.ipynb). Next: [07 One encoder, many tasks](07_mtdnn_san.ipynb).
