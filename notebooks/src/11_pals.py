# %% [markdown]
# # 11 Projected attention layers
#
# Eight tasks can have eight models, or share one model with less freedom for each task. Projected attention layers (PALs) lie in
# between: all tasks share one encoder, and each task has a small attention beside every layer. **Is a small attention of its own worth its price
# to a task, and what goes wrong in the cheaper form of a student report?** You will compute a PAL on paper, build it, count its parameters, take
# the cheaper form apart, and compare six seeds on real data with a PAL that you train.
#
# | | |
# |---|---|
# | time | 1½ hours to read and solve (estimated) · fast: 2 min on two CPU cores · colab: about 30 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [01 minBERT](01_minbert.ipynb), [10 Annealed sampling](10_annealed_sampling.ipynb) |
# | papers | Stickland and Murray 2019 (BERT and PALs), section 3 · *Multitask BERT*, a CS224N report, section 3.4 and Table 1 |

# %% [markdown]
# ## You will be able to
#
# - compute a projected attention layer on three tokens by hand,
# - add it to BERT's layer at the right place,
# - count the parameters of one more task in six designs,
# - start training at exactly the pretrained encoder, and say which weights get a gradient there,
# - decide from a formula whether a part can attend at all.
#
# ![Diagram of one layer of the shared encoder. The input h goes through attention, is added to its result, and is normalised to a. The same
# happens with a and the feed-forward network. A small box for each task stands beside the layer. In the box, V^E makes the vectors narrow, attention g mixes them, and V^D makes them wide
# again. The result of the box is added before the last normalisation.](images/11_pal.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the files of sst, quora and sts; None: what the profile says
updates = 400  # of each system in section 6

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

open_notebook("11", profile, output_dir)

# %% tags=["setup", "effect"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded
from mmlcourse.lessons.profiles import get_profile
from mmlkit.bert import BertConfig, BertModel, load_pretrained
from mmlkit.data import collate, encode, load_task, plan
from mmlkit.heads import LinearHead, PairHead
from mmlkit.pals import add_pals
from mmlkit.runtime import pick_device, seeded

size, device = get_profile(profile), pick_device()
print(f"mmlkit {mmlkit.__version__}, torch {torch.__version__} on {device.type}")

# %% [markdown]
# ## 1 Three tokens on paper
#
# One shared encoder serves several tasks, but then every task's updates change it for all others (notebook 10). So each task gets a small
# part of its own. Stickland and Murray add a narrow attention beside every layer, a PAL. With a row of $h$ for each token, it computes
#
# $$\mathrm{TS}(h) = g(h V^E)\, V^D$$
#
# $V^E$ makes the vectors narrow ($D$ to $S$ numbers), $g$ is self-attention of width $S$, and $V^D$ makes them wide again. Take $D = 2$, $S = 1$,
# one attention head, and three tokens:
#
# $$h = \begin{pmatrix}0 & 5\\ 1 & 5\\ 2 & 5\end{pmatrix} \qquad V^E = (1, 0)^\top \qquad q = z \ln 2 \qquad k = z \qquad v = 21 z \qquad V^D = (1, -1)$$
#
# 1. $V^E$ keeps the first feature of each token: $z = 0, 1, 2$.
# 2. The score of tokens $i$ and $j$ is $q_i k_j = z_i z_j \ln 2$, so before normalisation the weights are $2^{z_i z_j}$.
# 3. The values are 0, 21, 42.
#
# **Predict before you run.** Which weights does each token give to the three tokens, and which three whole numbers does $g$ give?

# %%
h = torch.tensor([[0.0, 5], [1, 5], [2, 5]])
z = h @ torch.tensor([1.0, 0])  # [T]: V^E
q, k, v = z * np.log(2), z, 21 * z
weights = (q[:, None] * k).softmax(-1)  # [T,T]; the square root of S is 1
mixed = weights @ v

# %% tags=["answer"]
with folded():
    for row, one in zip((weights / weights[:, :1]).tolist(), mixed.tolist()):
        print("weights", " : ".join(f"{x:.0f}" for x in row), f"  g = {one:.0f}")
    print("V^D then turns each number x into (x, -x).")

# %% [markdown]
# At base 2, the picture shows these weights. Now let the scores grow: move the base of the logarithm in $q$.
#
# **Predict before you run.** Towards which number does the third token's output go, and what does the first token do?


# %% tags=["setup"]
def draw_weights(base):
    """The attention weights of the toy, with ln base instead of ln 2, and g at the right."""
    shares = (np.log(base) * z[:, None] * k).softmax(-1)
    rows = [f"token {i}, g = {one:.1f}" for i, one in enumerate((shares @ v).tolist())]
    tokens = [f"token {i}" for i in range(3)]
    plots.similarities(shares.numpy(), rows, tokens, xlabel=f"q = z ln {base}", bar="weight")


# %%
plots.sliders(draw_weights, start={"base": 1}, base=[1, 2, 4, 16])

# %% [markdown]
# *A row for each token that attends, a column for each token that is read.*
#
# <details><summary>Answer</summary>
#
# Towards 42: the third token attends more and more to itself. The first one has only scores of 0, so it weighs all equally at every base, and
# gets the mean, 21.
#
# </details>
#
# Two other parts, which cost about as much as a PAL, have no such table: *low-rank layers* ($\mathrm{gelu}(h V^E)\, V^D$ beside a layer) and Houlsby's *adapters* (the same inside the
# layer, with a residual). In them, no token receives information from another token.

# %% [markdown]
# ## 2 The place in the layer
#
# BERT's layer has two halves. Each half adds its result to its input, and then normalises. A PAL stands beside the *whole* layer:
# it reads the layer's input $h$, and its result is added before the last normalisation.
#
# $$a = \mathrm{LN}(h + \mathrm{MH}(h)) \qquad\qquad h' = \mathrm{LN}(a + \mathrm{FFN}(a) + \mathrm{TS}(h))$$
#
# | symbol | name in the code | shape |
# |---|---|---|
# | $h$, $h'$ | input and output of a layer, `h` | `[T, D]` |
# | $a$ | output of the attention half, with its residual, `a` | `[T, D]` |
# | $V^E$, $V^D$ | the task's projections, `down` and `up` (torch stores the transposes) | `[D, S]`, `[S, D]` |
# | $g$ | attention of width $S$ without an output projection, `attention[i]` in layer $i$ | `[T, S]` to `[T, S]` |
# | $\mathrm{TS}$ | the task-specific function, `ts(h, i)` | `[T, D]` |
#
# <details><summary>A misprint in the CS224N report <i>Multitask BERT</i></summary>
#
# Its formula has $h$ instead of $a$ as the second residual. That is not BERT, as notebook 01 has shown with tensors. It is probably no mistake of
# the code. The highest SST accuracy of the report (0.512, a single run) is close to that of a correct BERT-base (0.520, notebook 02).
#
# </details>
#
# ## 3 Build it
#
# Each attention head takes $S/H$ features of query, key and value, and the results of the heads are concatenated, and not projected.


# %%
def attend(z, own, heads):
    """g of one layer: z [T,S] to [T,S]. own has the linear maps query, key and value."""
    maps = (own.query, own.key, own.value)
    q, k, v = (one(z).unflatten(-1, (heads, -1)).transpose(0, 1) for one in maps)  # [H,T,S/H]
    weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)  # [H,T,T]
    return (weights @ v).transpose(0, 1).flatten(1)


# %%
torch.manual_seed(seed)
tiny = BertModel(BertConfig.tiny(initializer_range=0.3)).eval()  # 2 layers, D = 32
add_pals(tiny, ["sst", "sts"], size=12, num_heads=3, init="normal", seed=seed)  # init: section 5
own = tiny.pals.part("sst")


# %%
def ts(h, i):
    """TS of layer i, [T,D] to [T,D]."""
    return own.up(attend(own.down(h), own.attention[i], heads=3))


def layer_with_pal(h, i, layer):
    """One layer of the shared encoder with the task's PAL beside it."""
    a = layer.attention(h[None])[0]
    return layer.output.LayerNorm(a + layer.output.dense(layer.intermediate(a)) + ts(h, i))


# %% [markdown]
# **Checkpoint.** The library's encoder has the same weights. `add_pals` gave it two tasks, and the call names one of them.

# %%
ids = torch.tensor([[2, 7, 9, 4, 3]])
with torch.no_grad():
    ours = tiny.embeddings(ids, torch.zeros_like(ids))[0]
    for i, layer in enumerate(tiny.encoder.layer):
        ours = layer_with_pal(ours, i, layer)
    library, other = (tiny(ids, task=task).last_hidden_state[0] for task in ("sst", "sts"))
torch.testing.assert_close(ours, library, atol=1e-5, rtol=1e-5)
print(f"Equal. The PAL of sts changes the output by up to {(library - other).abs().max():.2f}.")

# %% [markdown]
# From here on we import it. The library also has `kind="low_rank"`, `"houlsby"` (adapters), and two kinds of section 6.
#
# ## 4 What a task costs
#
# BERT-base has 109,482,240 parameters.
#
# **Predict before you run.** Which share of them is in the attention of its twelve layers: a half, a quarter, or a tenth?


# %%
def count(module):
    """The number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


with torch.device("meta"):  # shapes without memory
    base = BertModel(BertConfig.base())
in_attention = sum(count(one.attention) for one in base.encoder.layer) / count(base)

# %% [markdown]
# <details><summary>Answer</summary>
#
# A quarter: attention has 28.4 million parameters, the feed-forward networks have twice as many (56.7 million), the embeddings
# 23.8 million and the pooler 0.6 million.
#
# </details>

# %% [markdown]
# Eight fine-tuned copies of BERT have 876 million parameters, and one shared encoder with eight heads has 109 million.
# Let $D = 768$ be the hidden size and $S = 204$ the projected size:
#
# | part | shape | where | parameters |
# |---|---|---|---|
# | $V^E$ | $D \to S$, with bias | once for all layers | $768 \cdot 204 + 204 = 156{,}876$ |
# | $V^D$ | $S \to D$, with bias | once for all layers | $204 \cdot 768 + 768 = 157{,}440$ |
# | query, key, value | $S \to S$, with bias | in each of 12 layers | $12 \cdot 3\,(204^2 + 204) = 1{,}505{,}520$ |
#
# Together they are 1,819,836 parameters. Low-rank layers (width 100, both matrices in each layer) and adapters (width 50, twice
# in each layer) have about as many, because their widths were chosen for that. The CS224N report *Multitask BERT* (*the report* from here on) has a
# variant with fewer, the *sequential form*: one projected attention on top of the encoder. The last design is one more BERT layer on top for each task.

# %%
D, L = 768, 12


def pal_size(S):
    """The parameters of a task's PAL of width S."""
    return (D * S + S) + (S * D + D) + L * 3 * (S**2 + S)


# %%
by_hand = {
    "PAL": pal_size(204),
    "low-rank layers": L * ((D * 100 + 100) + (100 * D + D)),
    "adapters": 2 * L * ((D * 50 + 50) + (50 * D + D)),
    "sequential form": (D * 204 + 204) + (204 * D + D) + 3 * (204**2 + 204),
}

# %%
for kind, number in zip(("pal", "low_rank", "houlsby", "sequential"), by_hand.values()):
    with torch.device("meta"):
        assert count(add_pals(BertModel(BertConfig.base()), ["sst"], kind=kind).pals) == number
print(f"PAL {by_hand['PAL']:,} parameters, BERT-base {count(base):,}")


# %% tags=["setup"]
def draw_sizes(tasks, S, right=6.8):
    """The sizes of five designs for some tasks, in BERTs. A copy for each task is outside."""
    own = {"one more layer on top": count(base.encoder.layer[0]), **by_hand, "PAL": pal_size(S)}
    total = [1 + tasks * one / count(base) for one in own.values()]
    with plots.style():
        ax = plt.subplots(figsize=(8, 2.3), layout="constrained")[1]
        ax.bar_label(ax.barh(list(own), total, color="C1"), fmt="%.2f", padding=3)
        ax.axvline(2, color="black", linewidth=1, linestyle=":")  # one more BERT
        ax.set(xlabel=f"size in BERTs (PALs of width {S})", xlim=(1, right))
        ax.set_title(f"{tasks} tasks share one BERT (a copy for each: {tasks})")
        ax.invert_yaxis()


# %% [markdown]
# **Predict before you run.** Eight tasks with PALs: how many times the size of one BERT is this in all? And with eight copies?

# %% tags=["answer"]
with folded():
    print(f"{1 + 8 * pal_size(204) / count(base):.2f} times, against 8 times.")
    draw_sizes(8, 204, right=1.7)
    plt.show()

# %% [markdown]
# **Predict before you run.** From how many tasks on do the PALs together have as many parameters as one more BERT? With twice the width, is it half as
# many tasks?

# %%
plots.sliders(draw_sizes, start={"tasks": 20, "S": 204}, tasks=[8, 20, 40, 60, 80], S=[204, 408])

# %% [markdown]
# <details><summary>Answer</summary>
#
# From about 60, since one PAL is a sixtieth. With twice the width, less than half as many suffice, because query, key and value grow with $S^2$.
#
# </details>
#
# (The dotted line is one more BERT.) The width 204 was chosen for the total of 1.13 with eight tasks. All layers share the two
# projections, because separate ones would need twelve times as many parameters. The number of attention heads does not change the count,
# because the heads only divide the 204 features.
#
# ## 5 Three properties
#
# ### Training starts at BERT
#
# With $V^D = 0$ the layer is BERT's layer, whatever the other weights are. The library starts there (`init="zero"`), while the authors
# draw $V^D$ from $\mathcal N(0, 0.02^2)$ like all other weights (`init="normal"`).

# %% tags=["effect"]
import copy

TASKS, source = ("sst", "quora", "sts"), source or size.source
encoder, tokenizer = load_pretrained(size.model, device="cpu")

# %% tags=["effect"]
WIDTHS = {"low_rank": 100, "houlsby": 50}  # for D = 768; the other kinds have 204


def fresh(kind, tasks=TASKS, seed=seed, **options):
    """The pretrained encoder with parts of this kind for each task, in proportion to its width."""
    model = copy.deepcopy(encoder)
    width = WIDTHS.get(kind, 204) * model.config.hidden_size / 768
    S = round(width) if kind in WIDTHS else 12 * round(width / 12)
    return add_pals(model, list(tasks), kind=kind, size=S, seed=seed, **options) if kind else model


# %%
coded = encode(tokenizer, load_task("sst", source, seed=seed).dev, max_length=size.max_length)
few, mask = (getattr(collate(coded, range(8)), one) for one in ("input_ids", "attention_mask"))
starts = {}
with torch.no_grad():
    plain = encoder(few, mask).last_hidden_state[mask.bool()]
    for init in ("zero", "normal"):
        out = fresh("pal", init=init)(few, mask, task="sst").last_hidden_state[mask.bool()]
        starts[init] = ((out - plain).abs().mean() / plain.abs().mean()).item()
print(f"init='normal' changes an entry of the output by {starts['normal']:.1%} on average,")
print(f"init='zero' by {starts['zero']:.1%}.")

# %% [markdown]
# But can weights that start at zero learn?
#
# **Predict before you run.** With $V^D = 0$, which of the five matrices of a PAL get a gradient in the first step?


# %%
from mmlkit.training import MultitaskModel


def new_model(kind=None, pooling=size.pooling, **options):
    """The encoder with parts of this kind, and a new head for each task; pairs are separate."""
    with seeded(seed, device):
        shared, width = fresh(kind, **options), encoder.config.hidden_size
        heads = {"sst": LinearHead(width, 5, pooling=pooling)}
        heads |= {n: PairHead(width, C, pooling=pooling) for n, C in (("quora", 2), ("sts", 1))}
    return MultitaskModel(shared, heads, tokenizer).to(device)


# %%
def some(task, rows=8):
    """A small batch of a task's training rows."""
    split = load_task(task, source, seed=seed).train.take(range(rows))
    how = "separate" if split.task.is_pair else "packed"
    coded = encode(tokenizer, split, max_length=size.max_length, pairs=how)
    return collate(coded, range(rows)).to(device)


# %%
MATRICES = {"V^E": "down", "query": "query", "key": "key", "value": "value", "V^D": "up"}


def gradient_norms(model):
    """The norm of the gradient of each matrix of the sst part, over all layers."""
    model.zero_grad()
    model.eval().loss(some("sst")).total.backward()
    part = model.encoder.pals.part("sst").named_parameters()
    weights = [(name, p.grad.norm() ** 2) for name, p in part if name.endswith("weight")]
    return {
        shown: sum(square for name, square in weights if own in name).sqrt().item()
        for shown, own in MATRICES.items()
    }


# %% tags=["setup"]
def draw_norms(designs):
    """A dot for each gradient norm on a logarithmic axis; exact zeros stand at its left end."""
    with plots.style():
        ax = plt.subplots(figsize=(7.5, 2.4), layout="constrained")[1]
        for (name, norms), marker, shift in zip(designs.items(), "os", (-0.15, 0.15)):
            places = np.arange(len(norms)) + shift  # so that no marker covers another
            ax.plot([max(n, 1e-12) for n in norms.values()], places, marker, label=name)
        ax.set(xscale="log", xlim=(5e-13, 100), xlabel="gradient norm")
        ax.set_xticks([1e-12, 1e-8, 1e-4, 1], ["0", "$10^{-8}$", "$10^{-4}$", "1"])
        ax.set_yticks(range(5), ["$V^E$", "query", "key", "value", "$V^D$"])
        ax.set_ylim(4.5, -0.5)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        plt.show()


# %%
first_step = {
    "zero, V^D = 0": gradient_norms(new_model("pal", init="zero")),
    "normal": gradient_norms(new_model("pal", init="normal")),
}

# %% tags=["answer"]
with folded():
    print("Only V^D. Drawn from a normal distribution, all five get one.")
    draw_norms(first_step)

# %% [markdown]
# The gradients of the earlier matrices pass through $V^D$, which is 0, so only $V^D$ learns in the first step. From the second step on, all
# five matrices get a gradient. Those of query and key are small with *normal*, too, because small weights attend almost uniformly. Adam mostly
# compensates for this, because it divides each gradient by its size.
#
# ### The parts of other tasks do not move
#
# A step on sst must not move the parts of quora or sts. That is not self-evident, because an optimizer with momentum or weight decay also
# moves weights whose gradient is a tensor of zeros. `train_step` leaves such gradients at `None`.

# %%
from mmlkit.training import TaskSampler, fit, make_optimizer, train_step

model = new_model("pal")
optimizer = make_optimizer(model, lr=size.lr, head_lr=size.head_lr)
train_step(model, some("quora"), optimizer)  # from now on quora's weights have momentum
before = {key: value.clone() for key, value in model.state_dict().items()}
for _ in range(2):
    train_step(model, some("sst"), optimizer)
moved = {key: not torch.equal(v, before[key]) for key, v in model.state_dict().items()}
for part in ("pals.parts.sst", "pals.parts.quora", "heads.sst", "heads.quora"):
    mine = [was_moved for key, was_moved in moved.items() if f"{part}." in key]
    print(f"{part}: {sum(mine)} of {len(mine)} tensors moved")

# %% [markdown]
# The *predictions* for quora have changed nevertheless, because the shared encoder moved. If you freeze it and train only PALs and heads, no task
# can change another task's predictions. The price is that no task can learn from another one.
#
# ## 6 A cheaper variant
#
# The report also tries one projected attention on top of the encoder. It reads the final vector of [CLS], and its result replaces this vector as
# the input of the head. At the same learning rate, the printed scores of this *sequential form* are far below those of parallel PALs, and the
# report's explanation is too little training. The *corrected form* (`kind="sequential_fixed"` in the library) attends over all tokens and
# adds its result to them.
#
# **Predict before you run.** How large are the gradients of query and key in the sequential form, compared with its other matrices?

# %%
sequential = new_model("sequential", pooling="cls")
corrected = new_model("sequential_fixed", pooling="cls", init="normal")
on_top = {
    "sequential form": gradient_norms(sequential),
    "corrected form": gradient_norms(corrected),
}

# %% tags=["answer"]
with folded():
    print("Zero, up to rounding.")
    draw_norms(on_top)

# %% [markdown]
# The sequential form attends over *one* vector, so there is one key, and the softmax of one score $s$ is $e^s / e^s = 1$ for every $s$. So
# query and key have no influence, at every learning rate and after any number of steps. The sequential form is three affine maps in a row:
# down, value, up.
#
# $$\mathrm{TS}(x) = \big((x V^E + b)\, W_v + b'\big)\, V^D + b''$$
#
# Here $b$, $b'$ and $b''$ are the biases. Three affine maps in a row are one affine map, and the head after it is linear, so both together are
# *one linear head*. In the code, `matrix` is $(V^E W_v V^D)^\top$, because torch stores transposes.

# %%
part, head = sequential.encoder.pals.part("sst").eval(), sequential.heads["sst"].eval()
some_x = encoder(few, mask).last_hidden_state[:, :1].detach().to(device)  # vectors of [CLS]
with torch.no_grad():
    TS = lambda x: part.transform_output(x, None, None)  # the library's TS: [B,1,D] to [B,1,D]
    maps = part.projected  # with the modules down, attention and up
    matrix = maps.up.weight @ maps.attention[0].value.weight @ maps.down.weight  # [D,D]
    constant = TS(torch.zeros_like(some_x))
    weight = head.dense.weight @ matrix  # [C,D]
    bias = head.dense.bias + head.dense.weight @ constant[0, 0]
    torch.testing.assert_close(head(TS(some_x)[:, 0]), some_x[:, 0] @ weight.T + bias)
both, one = count(part) + count(head), weight.numel() + bias.numel()
print(f"With {both:,} parameters, both together equal a linear head with {one:,}.")

# %% [markdown]
# For single-sentence tasks, the sequential form plus its head can represent the same functions as a linear head on [CLS]. Nothing
# is lost in the middle, because $S$ is larger than the number of labels. But the two have other parameters, so they train differently. (On pairs, our heads also take products, so the functions differ.)
#
# <details><summary>Did the report's systems learn at all?</summary>
#
# Eight of the 24 accuracies in the report's Table 1 equal, to three digits, the accuracy of always predicting one label. This is strong evidence,
# but no proof, that these systems predict a constant on that task. Among them are the sequential systems: none is better than a constant on
# sentiment. (`mmlcourse.studies.constant_accuracies` computes such accuracies.)
#
# </details>
#
# ### The same comparison, live
#
# Now we train four systems on sst. All read the *same frozen encoder*, whose vectors are computed once, and have the same batches, steps and
# learning rate. Three read the vector of [CLS]: directly (*linear head*), through the sequential form, or through its corrected form. The
# fourth is a control without attention, a linear head on the mean of all tokens. (Parallel PALs need the whole encoder; section 7 trains one.)

# %% tags=["setup", "effect"]
sst = load_task("sst", source, limit=1000, seed=seed)


@torch.no_grad()
def frozen_vectors(split):
    """The frozen encoder's vectors [N,T,D] of a split, its mask [N,T] and its labels [N]."""
    coded = encode(tokenizer, split, max_length=size.max_length)
    whole = collate(coded, range(len(split)))
    vectors = torch.zeros(*whole.input_ids.shape, encoder.config.hidden_size)
    for rows in plan(coded.lengths, 64):  # rows of similar length need little padding
        one = collate(coded, rows)
        out = encoder(one.input_ids, one.attention_mask, one.token_type_ids).last_hidden_state
        vectors[list(rows), : out.shape[1]] = out
    return vectors, whole.attention_mask, whole.labels


# %% tags=["setup", "effect"]
frozen = {"train": frozen_vectors(sst.train), "dev": frozen_vectors(sst.dev)}


@torch.no_grad()
def accuracy(head, read, split):
    """Accuracy on all rows of a split."""
    h, mask, labels = frozen[split]
    return (head(read(h, mask)).argmax(1) == labels).float().mean().item()


# %% tags=["effect"]
from torch.nn.functional import cross_entropy


def form_on_top(kind, seed):
    """Parameters of a form on top, and its function: vectors [B,T,D] to one per row, [B,D]."""
    part = fresh(kind, ["sst"], seed=seed).pals.part("sst")

    def read(h, mask):
        T = mask.sum(1).max() if kind == "sequential_fixed" else 1  # no row has more tokens
        h, mask = h[:, :T], mask[:, :T]
        return part.transform_output(h, encoder.additive_mask(mask, h), 1)[:, 0]

    return list(part.parameters()), read


# %% tags=["effect"]
token_mean = lambda h, mask: (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
READERS = {  # of a seed: the parameters before the head, and the function
    "linear head": lambda _: ([], lambda h, mask: h[:, 0]),
    "sequential form": lambda seed: form_on_top("sequential", seed),
    "corrected form": lambda seed: form_on_top("sequential_fixed", seed),
    "mean of tokens": lambda _: ([], token_mean),
}


# %% tags=["effect"]
def curve(parameters, read, seed, steps=updates, lr=1e-3):
    """{step: dev accuracy} of a linear head behind a reader, and its accuracy on train."""
    torch.manual_seed(seed)  # the same head and batches for all kinds
    head = LinearHead(encoder.config.hidden_size, 5).dense
    optimizer = torch.optim.AdamW([*head.parameters(), *parameters], lr=lr)
    (h, mask, labels), on_dev = frozen["train"], {}
    for step in range(1, steps + 1):
        rows = torch.randperm(len(labels))[:32]
        optimizer.zero_grad()
        cross_entropy(head(read(h[rows], mask[rows])), labels[rows]).backward()
        optimizer.step()
        if step % (steps // 8) == 0:
            on_dev[step] = accuracy(head, read, "dev")
    return on_dev, accuracy(head, read, "train")


# %% [markdown]
# **Predict before you run.** The sequential form can represent the same functions as the linear head. Will it end above it, below it, or level
# with it?

# %% tags=["effect"]
seeds = range(10 * seed, 10 * seed + 3)
curves = {name: [curve(*make(one), one) for one in seeds] for name, make in READERS.items()}
ends = {name: np.mean([one[updates] for one, _ in found]) for name, found in curves.items()}
effects = {
    "linear head minus sequential form": float(ends["linear head"] - ends["sequential form"]),
    "corrected form minus linear head": float(ends["corrected form"] - ends["linear head"]),
    "mean of tokens minus linear head": float(ends["mean of tokens"] - ends["linear head"]),
}

# %% tags=["answer"]
from mmlcourse.studies import tell_effects

with folded():
    runs = {n: {s: [d[s] for d, _ in found] for s in found[0][0]} for n, found in curves.items()}
    title = "sst, frozen encoder: mean and standard deviation of three seeds"
    always = {"majority class": np.bincount(frozen["dev"][2]).max() / len(sst.dev)}
    plots.accuracy_by_step(runs, lines=always, places=dict(zip(READERS, range(4))), title=title)
    plt.show()
    on_train = {name: np.mean([train for _, train in found]) for name, found in curves.items()}
    display(pd.DataFrame({"dev": ends, "train": on_train}).round(3).rename_axis("accuracy"))
    print("Five other seeds of the whole experiment, mean and standard error:")
    tell_effects("11", scale=100, unit="points")

# %% [markdown]
# Over the seeds, the sequential form ends below the linear head, although both can represent the same functions. At this one learning rate it is
# ahead at first and then overfits: in the stored run it falls after step 150, to 0.473 on dev with 0.830 on train. The corrected form
# overfits more (0.960 on train). It gains over [CLS] because it reads the other tokens, but a plain mean of the tokens gains more, so *this* gain needs no attention. (MiniLM was trained for the mean of its tokens, see notebook
# 00, which favours the mean.)
#
# ## 7 The answer: six seeds with and without PALs
#
# Table 1 of the report has one run of each system, at its best epoch on the split that judges it. At the learning rate 1e-5, parallel PALs
# score 0.664, task sampling without them 0.651, and sequential PALs 0.555. A difference of 0.013 between two single runs is no evidence. So we
# trained MiniLM on a part of the course's files (the runs of notebook 10: 450 updates, annealed sampling, six seeds) with and without
# PALs, and with the sequential form and its corrected form. Differences within one point count as *no difference of interest*, a limit that we set when these runs were known.
#
# **Predict before you run.** Parallel PALs against none, and the corrected against the sequential form: which of the two differences is larger
# than one point?

# %% tags=["answer"]
from mmlcourse.batch import recorded_differences

# in the records, "repaired" is the corrected form
FORMS = {"parallel PALs": "parallel", "sequential form": "sequential", "corrected form": "repaired"}
PALS = {f"{name} minus none": (f"pals-{one}", "annealed") for name, one in FORMS.items()}
PALS["corrected minus sequential form"] = ("pals-repaired", "pals-sequential")
with folded():
    about_pals = recorded_differences("real-sampling", PALS, "Overall score")
    plots.forest(about_pals, title="mean over six seeds and its 95 % interval, in points")
    plt.show()
    for _, name, found, _ in about_pals:
        print(f"{name}: {found.difference:+.1f} points ({found.low:+.1f} to {found.high:+.1f})")

# %% [markdown]
# ### Did these PALs learn at all?
#
# They start at zero and had the *encoder's* learning rate, which is a tenth of the heads'. Each run gave SST about 100 of its 450 updates. So we give
# a parallel PAL 100 updates on sst, beside a frozen encoder and before a head on [CLS]: without a PAL, at the encoder's rate, and at the heads' rate
# (that of notebook 12).


# %%
def train_pal(rate, steps=100):
    """Train a PAL (rate 0: none) and a head; return the change of the output and the accuracy."""
    model = new_model("pal", tasks=["sst"], pooling="cls")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("heads" in name or (".pals." in name and rate > 0))
    optimizer = make_optimizer(model, lr=size.lr, head_lr=size.head_lr, pal_lr=rate)
    sampler = TaskSampler("merged", sizes={"sst": steps}, seed=seed)  # so many batches
    run = dict(epochs=1, batch_size=8, optimizer=optimizer, seed=seed, precision=size.precision)
    history = fit(model, {"sst": sst}, sampler=sampler, device=device, **run)
    with torch.no_grad():
        out = model.eval().encoder(few.to(device), mask.to(device), task="sst").last_hidden_state
    change = (out.cpu()[mask.bool()] - plain).abs().mean() / plain.abs().mean()
    return {"change of the output": change.item(), "dev accuracy": history["accuracy"].item()}


# %% [markdown]
# **Predict before you run.** By what share does the PAL change an entry of the output, if it trains at the encoder's rate?

# %%
RATES = {"no PAL": 0, "encoder's rate": size.lr, "heads' rate": size.head_lr}
trained = {name: train_pal(rate) for name, rate in RATES.items()}

# %% tags=["answer"]
with folded():
    print("By {change of the output:.1%}.".format(**trained["encoder's rate"]))
    display(pd.DataFrame(trained).T.round(3))

# %% [markdown]
# **The answer.** Not decided, because the recorded PALs have probably hardly trained. With them, three tasks, 450 updates and this small encoder show no difference
# of interest: the whole interval lies within one point. But at the encoder's rate, 100 updates change the output by less than 1 % (one live run),
# and the accuracy is that of no PAL. At the heads' rate the PAL changes the output by 80 %, and the accuracy rises from 0.34 to 0.53. This encoder was
# frozen. Notebook 12 has such PALs beside an encoder that *trains*.
#
# The report's cheaper form costs 5.3 points, most of them on one task. (On SST the sequential form scores 27 %, almost like
# the majority class, 26 %.) The corrected form wins 5.5 points back, probably because it reads the other tokens. Whether it needs attention for that,
# these runs do not say, and in section 6 a plain mean sufficed. With eight tasks that conflict more, as in the paper, PALs may have more to offer.
#
# ## Exercises
#
# ### Exercise 1: a reader that learns where to look
#
# ● ● ○ · 20 minutes
#
# The mean weighs all tokens equally. Write a reader with one learned vector $w$ [D]: token $i$ gets the weight
# $\mathrm{softmax}_i(h_i \cdot w)$ over the real tokens, and the reader returns the weighted mean. (This is attention with a single query.)
# **Write down your prediction first**: near [CLS], near the mean of tokens, or above both?


# %%
my_prediction = "..."


def my_reader(h, mask, w):
    """h [B,T,D], mask [B,T] with 1 for a real token, w [D]. Returns one vector per row, [B,D]."""
    ...


h, mask, _ = frozen["dev"]
if my_reader(h, mask, torch.zeros(h.shape[-1])) is not None:
    found = []
    for i in range(3):
        w = torch.zeros(h.shape[-1], requires_grad=True)
        read = lambda h, mask, w=w: my_reader(h, mask, w)
        found.append(curve([w], read, 10 * seed + i)[0][updates])
    print(f"{my_prediction}: {np.mean(found):.3f}, beside {pd.Series(ends).round(3).to_dict()}")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `h @ w` has the shape [B,T]. `masked_fill(mask == 0, -torch.inf)` takes the padding out of the softmax.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# weights = (h @ w).masked_fill(mask == 0, -torch.inf).softmax(1)
# return (weights[..., None] * h).sum(1)
# ```
#
# In the stored run this reaches 0.656, beside 0.552 for [CLS] and 0.644 for the mean. So one learned query beats a fixed token clearly. From
# the mean it differs by one point in this one run, in which we see no difference.
#
# </details>

# %% [markdown]
# ### Exercise 2: the width for a price
#
# ● ● ○ · 15 minutes
#
# For which $S$ does a PAL cost as much as low-rank layers of a given width? Write the two counts as an equation in $S$, solve it, and round down to a
# multiple of 12, the number of attention heads. Before you run it: above or below 204 for the width 100?


# %%
def my_size(D, L, width):
    """D: hidden size, L: layers, width: of the low-rank layers. Returns S, a multiple of 12."""
    ...


_ = checks.check_equal_size(my_size)

# %% [markdown]
# <details><summary>Hint</summary>
#
# $3L\,S^2 + (2D + 1 + 3L)\,S + D$ is the count of a PAL, and $L\,(2D \cdot \text{width} + \text{width} + D)$ that of the low-rank layers.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# a, b, c = 3 * L, 2 * D + 1 + 3 * L, D - L * (2 * D * width + width + D)
# return 12 * int((-b + (b * b - 4 * a * c) ** 0.5) / (2 * a) // 12)
# ```
#
# For BERT-base and the width 100 it gives 204, as the authors have it.
#
# </details>

# %% [markdown]
# ### Exercise 3: the corrected form
#
# ● ● ○ · 15 minutes
#
# Write the corrected sequential form for one sentence, without biases and with one head. Each token attends over all tokens in the narrow space, and
# the result is added to it.


# %%
def my_corrected(h, V_E, W_q, W_k, W_v, V_D):
    """h [T,D], V_E [D,S], W_q, W_k and W_v [S,S], V_D [S,D]. Returns [T,D]."""
    ...


_ = checks.check_corrected_form(my_corrected)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `attend` in section 3 has the same steps for several heads. The scores are divided by the square root of $S$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# z = h @ V_E
# weights = (z @ W_q @ (z @ W_k).T / z.shape[1] ** 0.5).softmax(-1)
# return h + weights @ (z @ W_v) @ V_D
# ```
#
# With a single row in `h`, the weight is 1, and query and key drop out: that is the sequential form, but with a residual.
#
# </details>

# %% [markdown]
# ### Exercise 4: the first step with a GELU
#
# ● ● ● · 15 minutes
#
# Stickland and Murray's code computes $\mathrm{TS}(h) = \mathrm{gelu}(z V^D)$ with $z = g(h V^E)$. Take the zero initialisation: $V^D$ and its bias
# are 0. Write the gradient of the loss with respect to $V^D$ in the first step, with and without the GELU, in torch's layout [D,S].


# %%
def my_first_gradient(z, error, gelu):
    """z [T,S]; error [T,D] = dLoss/dTS; gelu: True or False. Returns dLoss/dV^D [D,S]."""
    ...


_ = checks.check_zero_start(my_first_gradient)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The gradient of $z V^D$ is a sum over tokens of outer products. The derivative of GELU at 0 is $\Phi(0)$, where $\Phi$ is the
# distribution function of the standard normal distribution.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return error.T @ z * (0.5 if gelu else 1.0)
# ```
#
# GELU(0) = 0, so the start is still BERT. The slope at 0 is ½, so the first gradient is halved.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *"this encoder has modules for ..."*: an encoder with PALs needs the name of the task, `encoder(..., task="sst")`. A
#   `MultitaskModel` passes it on.
#
# ## Takeaways
#
# - At the encoder's learning rate, over six seeds, **PALs make no difference of interest** beside annealed sampling alone
#   (−0.2 points, −0.8 to +0.2). On Quora they lose 0.8 (−1.2 to −0.2). **They may be hardly trained:** with a frozen encoder (one run)
#   100 updates change the output by 1 % at this rate, by 80 % at the heads' rate. Choose it first.
# - The report's sequential form loses 5.3 points. It attends over one vector, so it plus its head is only one linear head.
# - A task's PAL costs one sixtieth of BERT-base. Eight tasks together need 1.13 times one BERT.
# - A PAL lets tokens exchange information. Low-rank layers and adapters with as many parameters do not.
# - With $V^D = 0$, training starts exactly at BERT, and in the first step only $V^D$ learns.
#
# ## References
#
# Stickland and Murray (2019), *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*, ICML.
# Houlsby et al. (2019), *Parameter-Efficient Transfer Learning for NLP*, ICML. Hu and Xiao, *Multitask BERT*, CS224N default
# project report. Devlin et al. (2019), *BERT*, NAACL.
#
# Before: [10 Annealed sampling](10_annealed_sampling.ipynb). Next: [12 Putting it together](12_putting_it_together.ipynb).
