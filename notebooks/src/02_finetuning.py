# %% [markdown]
# # 02 Fine-tuning
#
# [![Open in Colab](images/colab.svg)](https://colab.research.google.com/github/mmlkit/mmlkit/blob/v0.1.0/notebooks/02_finetuning.ipynb)
#
# This notebook writes AdamW by hand and examines the other parts of a training step: the learning rate, the batches and the gradient. It
# then measures the gain of fine-tuning: over a frozen encoder on sentiment, and over the pretrained encoder without further training on
# sentence similarity.
#
# | | |
# |---|---|
# | time | 1½ hours to read and solve (estimated) · fast: 4 min on two CPU cores · colab: about 12 min on one GPU (estimated) · paper: about 2 h on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [01 minBERT](01_minbert.ipynb) |
# | papers | Kingma and Ba 2015, section 2 · Loshchilov and Hutter 2019 · Devlin et al. 2019, section 4 · Reimers and Gurevych 2019 |

# %% [markdown]
# ## You will be able to
#
# - write AdamW as the CS224N handout does, and name the two places where torch's version differs,
# - compute the gradient of one step without the training loop, and test that the library's `train_step` has the same gradient,
# - train a classifier with a frozen and with a fine-tuned encoder, and state the difference with its uncertainty,
# - train a similarity model that is better than the same encoder before this training,
# - read a learning curve and a confusion matrix.
#
# ![Flow chart of one training step. A batch of texts of similar length goes through the encoder and the head to a loss. The
# penalty of the head is added to the loss once per update. The gradient is clipped to norm 1. AdamW then updates the
# parameters with the learning rate of this step.](images/02_step.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the CS224N files; None: what the profile says
epochs = None  # None: what the profile says

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.1.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("02", profile, output_dir)

# %% tags=["effect"]
import numpy as np
import pandas as pd
import torch

from mmlcourse.lessons.profiles import get_profile

# %% tags=["effect"]
from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.heads import LinearHead
from mmlkit.runtime import fastest_precision, pick_device
from mmlkit.training import MultitaskModel, fit, predict_scores

size, device = get_profile(profile), pick_device()
source = source or size.source
epochs = epochs or (2 if profile == "fast" else size.epochs)
precision = fastest_precision(device) if size.precision == "auto" else size.precision

# %%
import matplotlib.pyplot as plt

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.plots import sliders
from mmlcourse.machine import describe

about = describe()
print(f"mmlkit {mmlkit.__version__}, torch {about['versions']['torch']}", end=", ")
print(f"{about['device']} in {precision}")
print(f"weights {size.model}, data {source}, {epochs} epochs")

# %% [markdown]
# ## 1 AdamW for one parameter
#
# Take a single parameter $\theta = 0.5$ and the loss $\theta^2$. Its gradient is $g = 2\theta$. The handout of the CS224N default
# project describes AdamW with two moving averages, of $g$ and of $g^2$:
#
# $$m_t = \beta_1 m_{t-1} + (1-\beta_1)\, g_t \qquad v_t = \beta_2 v_{t-1} + (1-\beta_2)\, g_t^2$$
# $$\alpha_t = \alpha \frac{\sqrt{1-\beta_2^t}}{1-\beta_1^t} \qquad
# \theta' = \theta_{t-1} - \alpha_t \frac{m_t}{\sqrt{v_t} + \epsilon} \qquad \theta_t = \theta' - \alpha\,\lambda\,\theta'$$
#
# | symbol | name | value here |
# |---|---|---|
# | $\alpha$ | learning rate, `lr` | 0.1 |
# | $\beta_1, \beta_2$ | weights of the old averages, `betas` | 0.9, 0.999 |
# | $\epsilon$ | small number in the denominator, `eps` | 1e-6 |
# | $\lambda$ | weight decay, `weight_decay` | 0.01 |
# | $t$ | number of the step | 1, 2, 3, ... |
# | $m_t, v_t$ | moving averages, `m`, `v` | 0 at $t = 0$ |
# | $\alpha_t$ | bias-corrected learning rate, `alpha_t` | computed |
# | $\theta'$ | parameter before weight decay | computed |
#
# **Predict before you run.** How large is the first step, before weight decay, if the gradient is 1? How large is it if the
# gradient is 100?

# %%
lr, beta1, beta2, eps, decay = 0.1, 0.9, 0.999, 1e-6, 0.01


def adamw_step(theta, g, m, v, t):
    """One update of one parameter, as the handout writes it."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    alpha_t = lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    theta = theta - alpha_t * m / (v**0.5 + eps)
    return theta - lr * decay * theta, m, v


# %% tags=["answer"] jupyter={"outputs_hidden": true}
sizes = {g: 0.5 - adamw_step(0.5, g, 0, 0, 1)[0] / (1 - lr * decay) for g in (1, 100, 1e-3, 1e-6)}
print(f"Answer: the step is {sizes[1]:.5f} for a gradient of 1 and {sizes[100]:.5f} for 100.")
print(f"It is {sizes[1e-3]:.5f} for 0.001, and {sizes[1e-6]:.5f} for a millionth.")

# %% [markdown]
# The size of the gradient hardly matters. The first step has the length of the learning rate, and its direction is opposite to
# the gradient. For very small gradients, $\epsilon$ makes the step shorter.

# %%
theta, m, v, path = 0.5, 0.0, 0.0, []
for t in range(1, 61):
    theta, m, v = adamw_step(theta, 2 * theta, m, v, t)
    path.append(theta)
print("first five:", [round(x, 4) for x in path[:5]])

# %% [markdown]
# **Checkpoint.** The class of the library makes the same sixty steps. The next figure uses it too.

# %%
from mmlkit.training import AdamW

weight = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
optimizer, theirs = AdamW([weight], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay), []
for _ in range(60):
    weight.grad = 2 * weight.detach()
    optimizer.step()
    theirs.append(weight.item())
difference = max(abs(a - b) for a, b in zip(path, theirs))
assert difference < 1e-12
print(f"largest difference over 60 steps: {difference:.1e}")

# %% [markdown]
# ### Two differences from torch
#
# `torch.optim.AdamW` decays the weights *before* the step, from the old $\theta$. The two results differ by about
# $\alpha^2\lambda$ per step. With $\alpha = 10^{-4}$ and $\lambda = 0.01$ this is $10^{-10}$, which can be neglected.
#
# It also adds $\epsilon$ to the bias-corrected root $\sqrt{v_t/(1-\beta_2^t)}$. So the handout's $\epsilon$ has a larger effect in
# early steps, by the factor $1/\sqrt{1-\beta_2^t}$. This factor is 32 at $t = 1$. The next figure shows its effect on the first
# step.


# %%
def first_step(make, g):
    """The first step of a parameter at 0, divided by the learning rate."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    weight.grad = torch.tensor([g], dtype=torch.float64)
    make([weight], lr=1.0, eps=1e-6, weight_decay=0.0).step()
    return -weight.item()


gradients = np.logspace(-9, -2, 60)
rules = {"handout": AdamW, "torch": torch.optim.AdamW}
steps = {name: [first_step(make, g) for g in gradients] for name, make in rules.items()}

# %%
with plots.style():
    fig, ax = plt.subplots(layout="constrained")
    for (name, values), line in zip(steps.items(), ("-", "--")):
        ax.semilogx(gradients, values, line, label=name)
    ax.set(xlabel="gradient", ylabel="first step / learning rate")
    ax.set(title="The same eps = 1e-6, in two places")
    ax.legend()
    plt.show()

# %% [markdown]
# *The step is half as long as the learning rate at a gradient of 3e-5 with the handout's rule, and at 1e-6 with torch's. The
# two curves are a factor of 32 apart on the gradient axis.*
#
# We train with torch's version, because it updates all parameters in one pass.
#
# ## 2 The learning rate schedule
#
# The learning rate rises linearly during the first tenth of all steps (warm-up) and then falls linearly to 0. It depends on the
# number of the step alone. Small first steps protect the pretrained weights
# while the new head is still random.

# %%
from mmlkit.training import learning_rate


def schedule(warmup):
    """The learning rate over 100 steps, divided by its peak."""
    warm = int(100 * warmup)
    rates = [learning_rate(step, peak=1.0, warmup=warm, total=100) for step in range(100)]
    with plots.style():
        fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
        ax.plot(rates)
        ax.set(xlabel="step, counted from 0", ylabel="learning rate / peak", ylim=(0, 1.05))
        ax.set(title=f"warm-up over {warmup:.0%} of the steps")


sliders(schedule, start={"warmup": 0.1}, warmup=[0.0, 0.05, 0.1, 0.2, 0.5])

# %% [markdown]
# *With a warm-up of 10 %, the learning rate reaches its peak in the tenth step, which has the number 9, and keeps it for one more step. It
# then falls linearly, to about 1 % of the peak in the last step. The slider changes the length of the warm-up.*
#
# ## 3 Batches of similar length
#
# All texts of a batch are padded to the length of the longest one. In random batches a large part of the computation is
# padding. The library's function `plan` therefore sorts the rows by length and then shuffles the batches. In large data sets
# it sorts within pools of fifty batches, so that the batches change from epoch to epoch.

# %% tags=["effect"]
sst = load_task("sst", source, seed=seed)

# %%
from mmlkit.data import collate, encode, plan

tokenizer = load_pretrained(size.model)[1]
encoded = encode(tokenizer, sst.train, max_length=size.max_length)
print(f"{len(sst.train)} rows for training, {len(sst.dev)} dev rows")
print(f"{encoded.lengths.mean():.1f} tokens on average, at most {encoded.lengths.max()}")


# %%
def real_share(batches):
    """Share of real tokens in padded batches."""
    padded = sum(len(rows) * encoded.lengths[rows].max() for rows in batches)
    return encoded.lengths.sum() / padded


order = np.random.default_rng(seed).permutation(len(sst.train))
at_random = [order[i : i + 32] for i in range(0, len(order), 32)]
planned = plan(encoded.lengths, 32, seed=seed)
print(f"real tokens: {real_share(at_random):.0%} in random batches", end=", ")
print(f"{real_share(planned):.0%} in planned ones")

# %% [markdown]
# Sorting by length removes most of the padding.
#
# ## 4 The gradient of one step, without the training loop
#
# The head is one linear layer on a vector of the sentence. The batch has $B$ rows, the vector has $D$ features, and there are
# $C$ labels. The label of row $i$ is $y_i$.
#
# | symbol | name | shape |
# |---|---|---|
# | $x$ | sentence vector: the mean of the token vectors, or the pooler's output | $[B, D]$ |
# | $W, b$ | parameters of the head | $[C, D]$, $[C]$ |
# | $z = \mathrm{dropout}(x)\,W^\top + b$ | logits | $[B, C]$ |
# | $L = -\frac1B\sum_i \log \mathrm{softmax}(z_i)_{y_i}$ | loss | scalar |


# %% tags=["effect"]
def new_model(task, head=None):
    """The pretrained encoder, and a head that is initialised with the seed."""
    encoder, _ = load_pretrained(size.model)
    torch.manual_seed(seed)
    if head is None:
        head = LinearHead(encoder.config.hidden_size, task.num_labels, pooling=size.pooling)
    return MultitaskModel(encoder, {task.name: head}).to(device)


# %% [markdown]
# The next cell makes the forward and the backward pass and clips the gradient: a norm above 1 is scaled to 1. `head.inputs` computes $x$
# from the output of the encoder, and `head(...)` computes $z$. The model is in eval mode, which switches dropout off. Otherwise its random
# numbers would change the gradient from one computation to the next.

# %%
batch = collate(encoded, planned[0]).to(device)
by_hand = new_model(sst.task).eval()
out = by_hand.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
head = by_hand.head(sst.task)
logits = head(*head.inputs(out, batch))
loss = torch.nn.functional.cross_entropy(logits, batch.labels)
loss.backward()
norm = torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
ours = {name: p.grad for name, p in by_hand.named_parameters() if p.grad is not None}
print(f"loss {loss.item():.4f}, gradient norm {norm.item():.2f}, clipped to 1")

# %% [markdown]
# The next cell prints the code of `train_step`, the function that `fit` calls for every batch. `fit` is the training loop of the
# library.

# %%
import inspect
import textwrap

from mmlkit.training import step, train_step

print(textwrap.dedent(inspect.getsource(train_step).split('"""')[2].strip("\n")))

# %% [markdown]
# | lines | what they do |
# |---|---|
# | the first `if` | chooses the precision |
# | `random_state`, `set_random_state` | save and restore the random numbers of dropout for a second try |
# | `clear_gradients` | deletes the gradients of the previous step |
# | `fast_matmul`, `cpu_shortcuts` | choose faster implementations of the same operations |
# | `_backward` | forward pass, loss and backward pass, in micro-batches if asked |
# | `group.sum` | adds the gradients of several processes |
# | `_with_penalty` | adds the gradient of a head's penalty (notebook 03) |
# | `_update` | clips the gradient to `clip` and calls the optimizer |
# | `unless_out_of_memory`, `_half` and the last lines | try again with half the micro-batch when memory runs out |
#
# A micro-batch is a part of the batch. Here the whole batch is one micro-batch. The two lines of `_backward` that matter are then
# `loss = model.loss(part)` and the line with `.backward()`.

# %%
print(inspect.getsource(step._backward))

# %% [markdown]
# **Checkpoint.** We compare the gradients in fp32, after clipping and before the optimizer changes any parameter. A hook of the
# optimizer copies them at that moment.


# %%
def gradients_of(model):
    """The gradients that train_step hands to the optimizer, and the loss."""
    found, optimizer = {}, torch.optim.SGD(model.parameters(), lr=0.0)

    def copy(*_):
        trained = [(name, p) for name, p in model.named_parameters() if p.grad is not None]
        found.update({name: p.grad.clone() for name, p in trained})

    optimizer.register_step_pre_hook(copy)
    result = train_step(model, batch, optimizer, clip=1.0, precision="fp32")
    return found, result.total.item()


theirs, their_loss = gradients_of(new_model(sst.task).eval())


# %%
def relative_difference(a, b):
    """Norm of the difference of two gradients, divided by the norm of the second."""
    assert a.keys() == b.keys()
    return sum((a[k] - b[k]).square().sum() for k in b).sqrt().item() / np.sqrt(
        sum(b[k].square().sum().item() for k in b)
    )


tolerance = 1e-4 if device.type == "cpu" else 3e-2  # a GPU multiplies matrices in TF32
assert relative_difference(ours, theirs) < tolerance and abs(their_loss - loss.item()) < tolerance
print(f"{len(theirs)} gradients, relative difference {relative_difference(ours, theirs):.1e}")

# %% [markdown]
# A check is useful only if it fails for a wrong result. A weaker check compares the parameters *after* one step of AdamW with the
# learning rate 1e-4. It accepts differences up to 2.1e-4, two learning rates and a margin for rounding. We give both checks a
# wrong gradient: ours with the opposite sign.
#
# **Predict before you run.** Which of the two checks notices the opposite sign?

# %%
negated = {name: -g for name, g in ours.items()}


def after_one_step(gradients):
    """All parameters after one step of AdamW with these gradients, as one vector."""
    model = new_model(sst.task)
    for name, p in model.named_parameters():
        p.grad = gradients.get(name)
    torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-8, weight_decay=0.0).step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


moved = (after_one_step(negated) - after_one_step(theirs)).abs().max().item()
gap = relative_difference(negated, theirs)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
found = {"gradients": gap >= tolerance, "parameters after the step": moved >= 2.1e-4}
noticed = [name for name, fails in found.items() if fails]
print(f"Answer: the check that notices the opposite sign compares the {' and the '.join(noticed)}.")
print(f"The relative difference of the gradients is {gap:.3f}.")
print(f"The parameters differ by at most {moved:.2e}, and 2.1e-04 is accepted.")
assert gap > 1.99 and moved < 2.1e-4

# %% [markdown]
# The first step of Adam is at most as long as the learning rate, for every parameter and either sign. After this step, two models with the
# same initialisation are never more than two learning rates apart. So with its tolerance, the weaker check cannot fail. A smaller tolerance
# shows a wrong sign, but hardly a wrong size (section 1). The gradients show both.
#
# ## 5 SST: frozen against fine-tuned
#
# A *frozen* run trains the head alone, on sentence vectors that never change. A *fine-tuned* run trains all parameters. Both runs
# have the same data, batches, number of updates, pooling and initialisation. They differ in the trained parameters and in the
# learning rates, and a frozen encoder has no dropout. Each run keeps its best dev epoch.
#
# The accuracy of the frozen head may still rise after these few updates. So the experiment measures the gain of fine-tuning at an
# equal number of updates. A later cell trains the frozen head ten times as long.
#
# **Predict before you run.** SST has five labels, from very negative to very positive. Which run has the higher dev accuracy,
# and by how many points?


# %% tags=["effect"]
def train(run, model, data, epochs=epochs, **rates):
    """Train one model; return it at its best epoch, with the history of the epochs."""
    options = dict(batch_size=size.batch_size, max_length=size.max_length, precision=precision)
    options |= size.checkpoints(output_dir, f"02-{run}")  # a long run continues after a disconnect
    return model, fit(model, data, epochs=epochs, seed=seed, **options, **rates)


frozen_rates, tuned_rates = dict(lr=size.frozen_lr), dict(lr=size.lr, head_lr=size.head_lr)
sst_frozen, frozen_history = train(
    "frozen", new_model(sst.task), sst, freeze_encoder=True, **frozen_rates
)
sst_tuned, tuned_history = train("tuned", new_model(sst.task), sst, **tuned_rates)


# %% tags=["effect"]
def right(model):
    """For each dev row 1 if the prediction is right, else 0."""
    scores = predict_scores(model, sst.dev, max_length=size.max_length, precision=precision)
    return (scores.argmax(1) == sst.dev.labels).astype(float)


frozen_right, tuned_right = right(sst_frozen), right(sst_tuned)
effects = {"SST: fine-tuned minus frozen": float((tuned_right - frozen_right).mean())}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlcourse.studies import paired_bootstrap, recorded_effects

compared = paired_bootstrap(tuned_right, frozen_right)
best = "fine-tuned" if compared.difference > 0 else "frozen"
print(f"Answer: the {best} run is more accurate; fine-tuned minus frozen", end=" ")
print(f"is {100 * compared.difference:+.1f} points", end=" ")
print(f"(95 % interval {100 * compared.low:+.1f} to {100 * compared.high:+.1f}).")

# %%
histories = {"frozen": frozen_history, "fine-tuned": tuned_history}
majority = np.bincount(sst.dev.labels).max() / len(sst.dev)
plots.learning_curves(histories, rows=len(sst.dev), baseline=majority, title="SST, dev split")
plt.show()

# %% [markdown]
# *Both runs are far above the majority class (dotted line, 0.20). Bars show one standard error of an accuracy on 160 dev rows, which
# is about 0.04. A ring marks the epoch that is kept.*
#
# Both runs are scored on the same rows, so many rows are right or wrong in both. The paired difference is therefore more
# certain than the bars suggest. The interval in the answer comes from drawing dev rows with replacement (paired bootstrap). Where
# it contains zero, this run alone does not show a gain. The record at the end of this part has other seeds.
#
# Does a gain only mean that the frozen head had too few updates? An update of the head alone is cheap, because the sentence vectors
# are computed once. The next cell gives the frozen head ten times as many epochs.

# %%
longer = {"epochs": 10 * epochs, "freeze_encoder": True, "lr": size.frozen_lr}
sst_long, long_history = train("frozen-long", new_model(sst.task), sst, **longer)
against_long = paired_bootstrap(tuned_right, right(sst_long))
print(f"frozen, {epochs} epochs: {frozen_right.mean():.3f}", end=", ")
print(f"{10 * epochs} epochs: {long_history['accuracy'].max():.3f}")
print(
    f"fine-tuned minus the longer frozen run: {100 * against_long.difference:+.1f} points", end=" "
)
print(f"(95 % interval {100 * against_long.low:+.1f} to {100 * against_long.high:+.1f})")

# %% [markdown]
# The longer run chooses the best of more epochs by their dev accuracy, which favours it. An interval that contains zero does not
# show which of the two runs is better.
#
# `benchmarks/lesson_effects.py` repeats the experiments of this notebook, with the same number of epochs, for other seeds. The next cell
# reads its record. All runs have the same dev rows, so the standard error covers the randomness of training alone. The second entry belongs
# to section 7.

# %%
recorded = recorded_effects("02")
for claim, row in recorded.iterrows():
    print(f"{claim}: {row['mean']:+.3f} ± {row.standard_error:.3f} (mean and standard error),")
    print(f"    above zero with {row.positive:.0f} of {row.seeds:.0f} other seeds")

# %% [markdown]
# `fit` keeps the parameters of the best dev epoch. This choice uses the dev split, so a dev score is a little too high. A
# final result needs the test split.
#
# ### Errors
#
# We distinguish two kinds of error between labels that are not neutral. The *strength* can be wrong (positive for very positive),
# or the *sign* (very negative for very positive). Errors with the label neutral are counted apart.
#
# **Predict before you run.** Which kind of error is more frequent in the fine-tuned model?

# %%
scores = predict_scores(sst_tuned, sst.dev, max_length=size.max_length, precision=precision)
plots.confusion_matrix(sst.dev.labels, scores.argmax(1), sst.task.labels, title="SST, fine-tuned")
plt.show()

# %% [markdown]
# *Most sentences are on the diagonal, where the prediction is right. The corners at the top right and the bottom left count the
# sentences that are taken for the opposite, very negative for very positive or the other way round.*

# %% tags=["answer"] jupyter={"outputs_hidden": true}
predicted, true = scores.argmax(1) - 2, sst.dev.labels - 2  # -2 very negative ... 2 very positive
products = (predicted * true)[predicted != true]
strength, sign, neutral = [(products > 0).sum(), (products < 0).sum(), (products == 0).sum()]
more = "sign" if sign > strength else "strength" if strength > sign else "neither kind"
print(f"Answer: {more} is more frequent. Of {len(products)} errors, {strength} are of strength,")
print(f"{sign} are of sign, and {neutral} involve the label neutral.")

# %% [markdown]
# These counts need a baseline. For the label positive, two labels have the other sign, and only one differs in strength alone. So
# wrong labels that are drawn at random give *twice* as many errors of sign as of strength. Only a ratio clearly above two would
# show that the sign is the harder part. The next cell counts the baseline and compares it with the share of errors of sign.

# %%
from scipy.stats import binomtest

pairs = [a * b for a in range(-2, 3) for b in range(-2, 3) if a != b]  # of two different labels
unlike = {"strength": sum(p > 0 for p in pairs), "sign": sum(p < 0 for p in pairs)}
by_chance = unlike["sign"] / (unlike["strength"] + unlike["sign"])
print(f"of {len(pairs)} wrong pairs of labels, {unlike['strength']} differ in strength", end=", ")
print(f"{unlike['sign']} in sign: among these two kinds, sign has the share {by_chance:.2f}")
if strength + sign:
    test = binomtest(int(sign), int(sign + strength))
    low, high = test.proportion_ci()
    print(f"fine-tuned model: share {test.statistic:.2f} (95 % interval {low:.2f} to {high:.2f})")

# %% [markdown]
# If the interval contains the share of random labels, the errors do not show that the sign is harder than the strength.
#
# Negation and irony are possible reasons for errors of sign. They reverse the opinion, and the strong words stay. The next cell
# prints the five errors with the highest predicted probability. In each case, decide whether the label is wrong or the sentence
# is hard.

# %%
from mmlkit.training import predict_proba, probabilities

shares = probabilities(scores, sst_tuned.heads["sst"])
wrong = np.flatnonzero(scores.argmax(1) != sst.dev.labels)
for i in sorted(wrong, key=lambda i: -shares[i].max())[:5]:
    label, truth = sst.task.labels[shares[i].argmax()], sst.dev[i]["label"]
    print(f"{label} ({shares[i].max():.2f}), true label {truth}:\n    {sst.dev.texts[i][0]}")

# %% [markdown]
# ## 6 CFIMDB: reviews and their twins
#
# CFIMDB holds reviews of several sentences. Some are *counterfactual twins*: the same review, rewritten with few changes so that
# the label changes. Twins share most of their words, so they are difficult for a model that only counts words. The next cell
# prints the beginning of a pair of twins.

# %%
cfimdb = load_task("cfimdb", "mini")  # not on the hub
groups = np.array(cfimdb.train.columns["group"])
numbers, counts = np.unique(groups, return_counts=True)
for i in np.flatnonzero(groups == numbers[counts == 2][0]):
    text = cfimdb.train.texts[i][0]
    print(f"{cfimdb.train[i]['label']}:\n{textwrap.fill(text[:420], 100)} ...\n")

# %% [markdown]
# The reviews are several times as long as the sentences of SST, so that training takes longer. Therefore this notebook
# has no run on CFIMDB. The table of section 8 shows recorded runs.
#
# ## 7 Similarity: better than the untrained encoder
#
# The labels of STS say how similar two sentences are, from 0 (unrelated) to 5 (same meaning). MiniLM was trained for sentence
# similarity. So the cosine of two *untrained* sentence vectors is already a strong baseline. Untrained means here: without any
# training on our data. Every trained model has to be compared with it. The metric is the Pearson correlation with the labels.
#
# A *cross-encoder* packs both sentences into one input. A *bi-encoder* encodes them separately. The head below belongs to a
# bi-encoder. Its prediction is five times the cosine, because the labels go up to 5. It has no parameters of its own. So
# training starts exactly at the baseline.
#
# The four class attributes describe the head to the library: separate encoding, regression, all tokens, one output. The library
# calls `inputs` for each sentence of a pair, and passes both vectors to `forward`.

# %% tags=["effect"]
from mmlkit.heads import Loss, sentence_vector


class CosineHead(torch.nn.Module):
    """Five times the cosine of two sentence vectors (Reimers and Gurevych 2019)."""

    pairs, kinds, needs_tokens, num_labels = "separate", ("regression",), True, 1

    def inputs(self, out, batch):
        return (sentence_vector(out, batch, "mean"),)

    def forward(self, u, v):
        return 5 * torch.cosine_similarity(u.float(), v.float())[:, None]

    def loss(self, inputs, batch):
        return Loss(((self(*inputs)[:, 0] - batch.labels) / 5).square().mean())

    def penalty(self):
        return None


# %% [markdown]
# **Predict before you run.** The baseline has a correlation of about 0.80 with the labels. Does one epoch of training raise it, and
# by how much?

# %% tags=["effect"]
from mmlkit.training import evaluate

sts = load_task("sts", source, seed=seed)
similarity = new_model(sts.task, CosineHead())
options = dict(max_length=size.max_length, precision=precision)
untrained = evaluate(similarity, sts, **options)["pearson"]
_, sts_history = train("sts", similarity, sts, epochs=1, lr=size.lr)
trained = sts_history["pearson"].iloc[-1]
effects["STS: trained minus untrained cosine"] = float(trained - untrained)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
change = "raises" if trained > untrained else "does not raise"
print(f"Answer: one epoch {change} the correlation, from {untrained:.3f} to {trained:.3f}.")

# %% [markdown]
# How certain is this difference? A correlation is not a mean of rows, so we compute it anew for each draw. Both models are scored
# on the same drawn rows. Pairs of one group are related, so whole groups are drawn.

# %%
labels = sts.dev.labels
both = {"untrained": new_model(sts.task, CosineHead()), "trained": similarity}
both = {name: predict_scores(one, sts.dev, **options)[:, 0] for name, one in both.items()}
groups = np.array(sts.dev.columns.get("group", range(len(sts.dev))))
members = [np.flatnonzero(groups == one) for one in np.unique(groups)]


def gain_in(rows):
    """Correlation of the trained model minus that of the untrained one, on these rows."""
    r = {name: np.corrcoef(one[rows], labels[rows])[0, 1] for name, one in both.items()}
    return r["trained"] - r["untrained"]


# %%
draws = np.random.default_rng(seed).integers(len(members), size=(2000, len(members)))
drawn_gains = [gain_in(np.concatenate([members[i] for i in one])) for one in draws]
low, high = np.quantile(drawn_gains, [0.025, 0.975])
assert abs(gain_in(np.arange(len(labels))) - (trained - untrained)) < 1e-3
print(f"{len(labels)} rows in {len(members)} groups: trained minus untrained", end=" ")
print(f"{trained - untrained:+.4f} (95 % interval {low:+.4f} to {high:+.4f})")

# %% [markdown]
# The interval covers the choice of dev rows, and the record of section 5 covers the randomness of training. With the five other seeds of
# that record, the gain is small and always positive. The next table has recorded runs of three epochs on STS (`stsb`). There the gain of
# the cosine head is about twice as large. The column `sd` has the standard deviation over the seeds.
#
# The row `fine-tuned` is a cross-encoder with a new linear head. It stays *below* the untrained cosine. One possible reason is that
# it has to learn the comparison from few pairs, and the cosine head starts with it. The two models also encode the pairs
# differently, so the table cannot prove this reason.

# %%
from pathlib import Path

from mmlcourse.studies import recorded_baselines

baselines = recorded_baselines()
if source == "mini" and len(baselines):
    display(baselines.loc[["stsb"]].round(3))

# %% [markdown]
# ## 8 Result
#
# The published column has reference accuracies of BERT-base on the real data. SST is the mean over ten seeds of the public
# repository neubig/minbert-assignment. CFIMDB has the reference accuracies of the CS224N handout. Our columns are MiniLM on the mini data.
# So compare the *differences* and not the accuracies. The recorded runs have three epochs, and `sd` is their standard deviation
# over the seeds. CFIMDB has no run in this notebook.

# %%
published = {("sst", "frozen"): 0.387, ("sst", "fine-tuned"): 0.520}
published |= {("cfimdb", "frozen"): 0.780, ("cfimdb", "fine-tuned"): 0.966}
kept = {name: history["accuracy"].max() for name, history in histories.items()}
this_run = {("sst", name): value for name, value in kept.items()}
this_run["sst", "majority class"] = majority
this_run["cfimdb", "majority class"] = np.bincount(cfimdb.dev.labels).max() / len(cfimdb.dev)

# %%
columns = {"published": published, "this run": this_run}
if source == "mini" and len(baselines):
    columns["recorded, 3 seeds"] = baselines["mean"].to_dict()
    columns["sd"] = baselines["sd"].to_dict()
rows = ["majority class", "frozen", "fine-tuned"]
result = pd.DataFrame(columns).reindex(pd.MultiIndex.from_product([["sst", "cfimdb"], rows]))
gains = result.xs("fine-tuned", level=1) - result.xs("frozen", level=1)
gains.index = pd.MultiIndex.from_product([gains.index, ["difference"]])
result = pd.concat([result, gains.drop(columns="sd", errors="ignore")]).loc[["sst", "cfimdb"]]
result.round(3).astype(object).fillna("")

# %%
gain = kept["fine-tuned"] - kept["frozen"]
slack = 0.02 if size.effects else 2 * (0.5 / len(sst.dev)) ** 0.5  # two standard errors
assert gain > -slack, f"fine-tuning should not lose to frozen, but it gains {gain:+.3f}"
assert not size.effects or trained > untrained - 0.01, (trained, untrained)
print(f"SST: fine-tuning adds {gain:+.3f}; published {0.520 - 0.387:+.3f}")
print(f"STS: training adds {trained - untrained:+.3f} to the untrained cosine")

# %% [markdown]
# Fine-tuning adds accuracy in both tasks, in our recorded runs (with an equal number of updates) and in the published numbers. In
# both, the gain is larger for CFIMDB than for SST. The dev split of CFIMDB is small, so our order of the two
# gains is uncertain. The frozen encoder is above the majority class in both tasks.
#
# ## 9 Save the model
#
# `save_model` writes the parameters and the settings to a folder. The printed command, run inside `output_dir`, loads this folder
# and predicts a label.

# %%
from mmlkit.training import save_model

folder = Path(output_dir) / "sst-model"
metadata = {"seed": seed, "source": str(source), "accuracy": float(kept["fine-tuned"])}
save_model(sst_tuned, folder, metadata=metadata)
print(f'mmlkit predict --model {folder.name} "A small, stubborn marvel."')

# %%
text = "The songs are lovely, every joke lands, and I left the cinema smiling."
row = predict_proba(sst_tuned, [text], task="sst")[0]
positive = sum(p for label, p in zip(sst.task.labels, row) if "positive" in label)
print(f"the two positive labels together: {positive:.2f}")
plots.bars(dict(zip(sst.task.labels, row)), xlabel="probability", title=text)
plt.show()

# %% [markdown]
# *The printed number is the sum of the two positive bars. The probability is divided between these two labels, so the strength is
# uncertain.*
#
# ## Exercises
#
# ### Exercise 1: the first step in closed form
#
# ● ● ○ · 10 minutes
#
# Section 1 plots the size of the first step of the handout's AdamW. Write the parameter after this step as one formula of the
# gradient, without moving averages. The parameter starts at 0, and there is no weight decay.


# %%
def my_first_step(g, lr, beta2, eps):
    """Return theta after the first step from theta = 0; beta1 cancels."""
    ...


_ = checks.check_first_step(my_first_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# At $t = 1$ the averages are $m = (1-\beta_1) g$ and $v = (1-\beta_2) g^2$. Divide numerator and denominator by
# $\sqrt{1-\beta_2}$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return -lr * g / (abs(g) + eps / (1 - beta2) ** 0.5)
# ```
#
# The step has half its full length at the gradient $\epsilon / \sqrt{1-\beta_2}$, which is 32 times $\epsilon$. With torch's rule
# it has half its length at $\epsilon$. The factor 32 is the distance between the two curves of section 1.
#
# </details>

# %% [markdown]
# ### Exercise 2: the learning rate schedule
#
# ● ○ ○ · 5 minutes
#
# Write the schedule of section 2 as a function of the step. Step 0 has `peak / warmup`. The steps `warmup - 1` and `warmup` have the peak.


# %%
def my_learning_rate(step, peak, warmup, total):
    """Linear up over warmup steps, then linear down to 0 at total; step counts from 0."""
    ...


_ = checks.check_learning_rate(my_learning_rate)

# %% [markdown]
# <details><summary>Hint</summary>
#
# There are two straight lines. The first reaches the peak at the step number `warmup - 1`. The second has the peak at the step
# number `warmup` too.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# if step < warmup:
#     return peak * (step + 1) / warmup
# return peak * (total - step) / (total - warmup)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: the standard error of a paired difference
#
# ● ● ○ · 15 minutes
#
# Two models are scored on the same N rows. `first` and `second` hold 1 for a right answer and 0 for a wrong one. Return the
# standard error of the difference of the two accuracies. Use the variance with N − 1.


# %%
def my_paired_error(first, second):
    """first, second: numpy arrays [N] of 0 and 1. Returns one number."""
    ...


_ = checks.check_paired_error(my_paired_error)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Each row has a difference of −1, 0 or 1. The difference of the accuracies is the mean of these N numbers.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# differences = first - second
# return differences.std(ddof=1) / len(differences) ** 0.5
# ```
#
# Try `my_paired_error(tuned_right, frozen_right)`. Compare it with the error of two independent samples, which is
# $\sqrt{s_1^2 + s_2^2}$ for the errors $s_1$ and $s_2$ of the two accuracies. The paired error is smaller where the two models are
# right on the same rows.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *The loss is nan, and fit stops*: the learning rate is too large, or fp16 overflowed. Try a tenth of it, or
#   `precision="fp32"`.
# - *The loss stays at log C, the loss of guessing among C labels*: the learning rate of the encoder is ten times too large, or
#   that of the head too small.
# - *Accuracy stays at the majority class*: labels may be in the wrong order. Look at `sst.train.frame()`.
# - *Out of memory*: pass `micro_batch_size=8` to `fit`. The gradient is still that of the whole batch.
#
# ## Takeaways
#
# - The first step of Adam has the length of the learning rate, whatever the size of the gradient. $\epsilon$ matters only for
#   very small gradients.
# - A test of a training step compares gradients. The first step of Adam hardly depends on their size.
# - In the recorded runs, fine-tuning adds 7.5 points on SST and 12.3 on CFIMDB, with an equal number of updates. Compare it also
#   with a frozen head that has ten times as many epochs: section 5 prints this difference on SST, with its interval.
# - A count of errors needs a baseline. Random errors on SST give twice as many errors of sign as of strength.
# - Compare a similarity model with the untrained cosine. In the recorded runs, one epoch with the cosine head adds about 0.01 to
#   it, and three epochs add about 0.02. The cross-encoder does not reach it.
#
# ## References
#
# Kingma and Ba (2015), *Adam*. Loshchilov and Hutter (2019), *Decoupled Weight Decay Regularization*. Devlin et al. (2019),
# *BERT*. Reimers and Gurevych (2019), *Sentence-BERT*. Kaushik, Hovy and Lipton (2020), *Learning the Difference that Makes a
# Difference with Counterfactually-Augmented Data*. Stanford CS224N, *Default final project: minBERT*.
#
# Before: [01 minBERT](01_minbert.ipynb). Next: [03 The maximal multiverse loss](03_multiverse_loss.ipynb).
