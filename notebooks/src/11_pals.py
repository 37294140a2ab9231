# %% [markdown]
# # 11 Projected attention layers
#
# Eight tasks need eight models, or one model that serves all of them a little worse, or something in between: one encoder, and beside each of
# its layers a small attention for every task. You will count its parameters on paper, build it, and prove that a variant of it cannot learn
# what it was built for.
#
# | | |
# |---|---|
# | time | fast: 1½ min on two CPU cores · colab: about 30 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [01 minBERT](01_minbert.ipynb), [10 Annealed sampling](10_annealed_sampling.ipynb) |
# | papers | Stickland and Murray 2019 (BERT and PALs), section 3 · *Multitask BERT*, a CS224N report, section 3.4 and Table 1 |

# %% [markdown]
# ## You will be able to
#
# - say where the parameters of an encoder are, and what a task of its own costs in five ways of having one,
# - compute a projected attention layer on three tokens by hand,
# - put it into BERT's layer at the right place, and test whether a formula is BERT's,
# - start at exactly the pretrained encoder, and say which weights get a gradient there,
# - show that attention over a single vector is no attention.
#
# ![A layer of the shared encoder: h goes through attention to a, and through the feed-forward network. Beside it stands a small box for each
# task: V^E makes the vectors narrow, attention g mixes them, V^D makes them wide again. Its result is added before the last
# normalisation.](images/11_pal.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with the files of sst, quora and sts; None: what the profile says
epochs = 1  # of the live runs
systems = None  # None: all eight of section 7; or some of them, such as ["shared", "PALs"]

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

from mmlkit import checks, plots, published
from mmlkit.plots import sliders
from mmlkit.profiles import get_profile
from mmlkit.runtime import describe, fastest_precision, pick_device

# %%
size, device, about = get_profile(profile), pick_device(), describe()
source = source or size.source
precision = fastest_precision(device) if size.precision == "auto" else size.precision
print(
    f"mmlkit {mmlkit.__version__}, torch {about['versions']['torch']} on {about['device']} in {precision}"
)
print(
    f"weights {size.model}, sst, quora and sts from {source}, {epochs} epoch{'s' * (epochs > 1)} per system"
)

# %% [markdown]
# ## 1 Where the parameters are
#
# BERT-base has 109,482,240 numbers. **Predict before you run.** Which part of them is in the attention of its twelve layers: a half, a
# quarter, a tenth?

# %%
from mmlkit.bert import BertConfig, BertModel


def count(module):
    """How many numbers a module holds."""
    return sum(parameter.numel() for parameter in module.parameters())


with torch.device("meta"):  # shapes without memory
    base = BertModel(BertConfig.base())
layers = base.encoder.layer
parts = {
    "tables of words, places, segments": count(base.embeddings),
    "attention, 12 layers": sum(count(layer.attention) for layer in layers),
    "feed-forward, 12 layers": sum(
        count(layer.intermediate) + count(layer.output) for layer in layers
    ),
    "pooler": count(base.pooler),
}
assert sum(parts.values()) == count(base) == 109_482_240
plots.bars(
    {name: number / 1e6 for name, number in parts.items()},
    xlabel="million parameters",
    title="BERT-base",
)
plt.show()

# %% [markdown]
# *Four bars: the tables of words, places and segments hold 23.8 million numbers, attention 28.4, the feed-forward networks 56.7, the pooler
# 0.6.*
#
# A quarter. Now eight tasks, as in GLUE. Eight fine-tuned copies are 876 million numbers. One shared encoder with eight heads is 109.5
# million, but every task has to live with what the others do to it (notebook 10). What could a task have for *itself*, for a hundredth of a
# copy?
#
# Stickland and Murray's answer: a narrow attention beside every layer. Let $D = 768$ be the encoder's width and $S = 204$ the narrow one.
# Count on paper:
#
# | part | shape | once or in every layer | numbers |
# |---|---|---|---|
# | $V^E$ | $D \to S$, with bias | once for all layers | $768 \cdot 204 + 204 = 156{,}876$ |
# | $V^D$ | $S \to D$, with bias | once for all layers | $204 \cdot 768 + 768 = 157{,}440$ |
# | query, key, value | $S \to S$, with bias | in each of 12 layers | $12 \cdot 3\,(204^2 + 204) = 1{,}505{,}520$ |
#
# Together 1,819,836, one sixtieth of BERT. The two projections are shared between layers; were they not, they alone would cost 3.8 million.
#
# Three ways to compare it with, each about as expensive:
#
# | way | beside or inside a layer | numbers |
# |---|---|---|
# | low-rank | $V^D\,\mathrm{gelu}(V^E h)$, both matrices in each layer, width 100; no token sees another | $12\,(768 \cdot 100 + 100 + 100 \cdot 768 + 768)$ |
# | Houlsby's adapters | the same with a skip, width 50, twice in each layer: on what either half is about to add | $24\,(768 \cdot 50 + 50 + 50 \cdot 768 + 768)$ |
# | sequential, the report's | one projected attention on top of the encoder | $156{,}876 + 157{,}440 + 3\,(204^2 + 204)$ |

# %%
from mmlkit.pals import add_pals

D, L = 768, 12
by_hand = {
    "pal": (D * 204 + 204) + (204 * D + D) + L * 3 * (204**2 + 204),
    "low_rank": L * ((D * 100 + 100) + (100 * D + D)),
    "houlsby": 2 * L * ((D * 50 + 50) + (50 * D + D)),
    "sequential": (D * 204 + 204) + (204 * D + D) + 3 * (204**2 + 204),
}
assert by_hand == {
    "pal": 1_819_836,
    "low_rank": 1_853_616,
    "houlsby": 1_862_832,
    "sequential": 439_776,
}
by_hand


# %%
def counted(kind, config):
    """What one task has for itself in the library's model, heads aside."""
    with torch.device("meta"):
        return count(add_pals(BertModel(config), ["sst"], kind=kind).pals)


costs = pd.DataFrame(
    {"by hand": by_hand, "counted": {kind: counted(kind, BertConfig.base()) for kind in by_hand}}
)
costs.loc["a layer on top"] = count(layers[0])
costs.loc["a model of its own"] = count(base)
costs["8 tasks, total / BERT"] = (
    1 + 8 * costs["counted"] / count(base) - (costs.index == "a model of its own")
)
assert (costs["by hand"] == costs["counted"]).all() and costs["8 tasks, total / BERT"].round(
    3
).tolist() == [1.133, 1.135, 1.136, 1.032, 1.518, 8.0]
costs.assign(
    **{name: costs[name].map("{:,.0f}".format) for name in ("by hand", "counted")}
).replace("nan", "").round(3)

# %% [markdown]
# That is how the sizes 204, 100 and 50 were chosen: eight tasks for 1.13 times one BERT. The number of attention heads changes nothing here,
# they only divide the 204. For three tasks, as in the report, it is 1.05 times.
#
# How do the two parts of a PAL share the numbers between them? The slider sets $S$. Attention grows with its square.


# %%
def draw_counts(S):
    """The parts of one task's PAL in BERT-base."""
    parts = {"V^E and V^D, once": 2 * D * S + S + D, "attention, 12 layers": 3 * L * (S * S + S)}
    share = 100 * sum(parts.values()) / count(base)
    millions = {name: number / 1e6 for name, number in parts.items()}
    title = f"S = {S}: {share:.2f} % of BERT-base"
    ax = plots.bars(millions, xlabel="million parameters", title=title)
    ax.set_xlim(0, 6)  # the same axis for all S


sliders(draw_counts, start={"S": 204}, S=[12, 24, 48, 96, 156, 204, 264, 384])

# %% [markdown]
# *Two bars at S = 204: 0.31 million numbers in the projections, 1.51 in the twelve attentions. Where a live front end exists, a slider sets
# S.*
#
# ## 2 Three tokens on paper
#
# A PAL computes
#
# $$\mathrm{TS}(h) = V^D\, g(V^E h)$$
#
# where $g$ is self-attention at width $S$. Take $D = 2$ and $S = 1$, one head, and three tokens
#
# $$h = \begin{pmatrix}0 & 5\\ 1 & 5\\ 2 & 5\end{pmatrix} \qquad V^E = (1, 0) \qquad q = z \ln 2 \qquad k = z \qquad v = 21 z \qquad V^D = (1, -1)^\top$$
#
# 1. $V^E$ keeps the first number of each token: $z = 0, 1, 2$.
# 2. The score of tokens $i$ and $j$ is $q_i k_j = z_i z_j \ln 2$, so before normalising the weights are $2^{z_i z_j}$: the first token weighs
#    the three as $1 : 1 : 1$, the second as $1 : 2 : 4$, the third as $1 : 4 : 16$.
# 3. The values are 0, 21, 42.
#
# **Predict before you run.** What do the three tokens get? All are whole numbers.

# %%
h = torch.tensor([[0.0, 5], [1, 5], [2, 5]])
z = h @ torch.tensor([1.0, 0])  # [T]: V^E
q, k, v = z * np.log(2), z, 21 * z
weights = (q[:, None] * k).softmax(-1)  # [T,T]; S = 1, so no square root of it is needed
mixed = weights @ v
print(
    "weights, times 3, 7 and 21:",
    *(weights * torch.tensor([[3.0], [7], [21]])).round().int().tolist(),
)
assert torch.allclose(mixed, torch.tensor([21.0, 30, 36]))
(mixed[:, None] * torch.tensor([1.0, -1])).round(decimals=4)  # [T,D]: V^D

# %% [markdown]
# The first token sees all alike and gets the mean, 21. The third looks mostly at itself. This is what low-rank layers and adapters cannot do:
# in them, a token gets nothing from another.
#
# ## 3 Where it goes
#
# BERT's layer has two halves, and each adds something to what came in before it normalises. A PAL stands beside the *whole* layer: it reads
# the layer's input $h$ and is added before the last normalisation.
#
# $$a = \mathrm{LN}(h + \mathrm{MH}(h)) \qquad\qquad h' = \mathrm{LN}(a + \mathrm{FFN}(a) + \mathrm{TS}(h))$$
#
# | symbol | name | shape |
# |---|---|---|
# | $h$, $h'$ | a layer's input and output, `h` | `[T, D]` |
# | $a$ | what attention makes of it, with its residual, `a` | `[T, D]` |
# | $V^E$, $V^D$ | the task's projections, `down` and `up` | `[S, D]`, `[D, S]` |
# | $g$ | attention of $S$ numbers, `attention[i]` in layer $i$; without an output projection | `[T, S]` to `[T, S]` |
# | $\mathrm{TS}$ | what is the task's own, `ts(h, i)` | `[T, D]` |
# | $D$, $S$, $T$ | width, narrow width, tokens | numbers |
#
# ### Misprints, and what no formula says
#
# | where | printed | what it would do | here |
# |---|---|---|---|
# | report, 3.1 and 3.4.1 | $\mathrm{LN}(h + \mathrm{SA}(h) + \mathrm{TS}(h))$ with $\mathrm{SA}(h) = \mathrm{FFN}(\mathrm{LN}(h + \mathrm{MH}(h)))$ | the second residual is $h$, and $a$ is dropped: not BERT | $a$ |
# | paper, its code | a GELU after $V^D$ that the formula does not have | negative additions are all but cut off | `gelu=True` |
# | paper, its code | 12 heads in the paper, 6 in the code | as many parameters either way | `num_heads=12` |
# | report, 3.4.2 | attention on the one vector of [CLS] | no attention at all, see section 6 | `kind="sequential"` |
#
# What does the first row cost? Take the pretrained encoder as it is, no PALs, and let it tell how alike two sentences are, by the cosine of
# their mean vectors. Then put $h$ where $a$ should be. **Predict before you run.** Pearson's $r$ with the scores given is high with the right
# residual. And with the wrong one?

# %%
from types import SimpleNamespace

from mmlkit.data import collate, encode, load_task
from mmlkit.heads import sentence_vector
from mmlkit.bert import load_pretrained

encoder, tokenizer = load_pretrained(size.model, device="cpu")
pairs = load_task("sts", source, limit=100, seed=seed).dev
batch = collate(
    encode(tokenizer, pairs, max_length=size.max_length, pairs="separate"), range(len(pairs))
)
print(f"{len(pairs)} pairs:", pairs[0])


# %%
@torch.no_grad()
def vectors(batch, second_residual):
    """Mean vector of every row [B,D]; second_residual chooses among a layer's h and a."""
    h = encoder.embeddings(batch.input_ids, batch.token_type_ids)
    mask = encoder.additive_mask(batch.attention_mask, h)
    for layer in encoder.encoder.layer:
        a = layer.attention(h, mask)
        h = layer.output.LayerNorm(
            second_residual(h, a) + layer.output.dense(layer.intermediate(a))
        )
    return sentence_vector(SimpleNamespace(last_hidden_state=h), batch, "mean")


# %%
correlations = {}
for name, residual in {"a, as in BERT": lambda h, a: a, "h, as printed": lambda h, a: h}.items():
    cosine = torch.cosine_similarity(vectors(batch, residual), vectors(batch.second, residual))
    correlations[name] = np.corrcoef(cosine, batch.labels)[0, 1]
with torch.no_grad():
    out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
assert torch.allclose(
    vectors(batch, lambda h, a: a), sentence_vector(out, batch, "mean"), atol=1e-4
)
print(
    ", ".join(f"second residual {name}: r = {r:.3f}" for name, r in correlations.items()),
    "(without any training)",
)
if profile == "fast":  # MiniLM has learned to compare sentences; BERT-base has not
    assert correlations["a, as in BERT"] > correlations["h, as printed"]

# %% [markdown]
# All weights are the same, and nothing was trained; one letter differs. Had the report's *code* done what its formula says, fine-tuning would
# have started from a worse encoder. But its SST accuracy, 0.512, is close to what others report of a sound BERT-base (0.520), so the slip is
# probably in the print alone.
#
# ## 4 Build it
#
# Now with several heads. Each head takes its $S/H$ numbers of query, key and value; what they give is set side by side again.


# %%
def attend(z, own, heads):
    """g of one layer: z [T,S] to [T,S]. own has the linear maps query, key and value."""
    q, k, v = (
        part(z).unflatten(-1, (heads, -1)).transpose(0, 1)
        for part in (own.query, own.key, own.value)
    )  # [H,T,S/H]
    weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)  # [H,T,T]
    return (weights @ v).transpose(0, 1).flatten(1)


torch.manual_seed(seed)
tiny = BertModel(BertConfig.tiny(initializer_range=0.3)).eval()  # 2 layers, 32 wide
add_pals(tiny, ["sst", "sts"], size=12, num_heads=3, init="normal", seed=seed)
own = tiny.pals.part("sst")
z = own.down(torch.randn(5, 32))
print(
    "V^E h",
    list(z.shape),
    " g",
    list(attend(z, own.attention[0], heads=3).shape),
    " TS",
    list(own.up(attend(z, own.attention[0], heads=3)).shape),
)


# %%
def ts(h, i):
    """TS of layer i, [T,D] to [T,D]."""
    return own.up(attend(own.down(h), own.attention[i], heads=3))


def layer_with(h, i, layer):
    """One layer of the shared encoder with the task's PAL beside it."""
    a = layer.attention(h[None])[0]
    return layer.output.LayerNorm(a + layer.output.dense(layer.intermediate(a)) + ts(h, i))


# %% [markdown]
# **Checkpoint.** The same weights in the library: an encoder that `add_pals` gave two tasks, called with the name of one.

# %%
ids = torch.tensor([[2, 7, 9, 4, 3]])
with torch.no_grad():
    h = tiny.embeddings(ids, torch.zeros_like(ids))[0]
    for i, layer in enumerate(tiny.encoder.layer):
        h = layer_with(h, i, layer)
    theirs, other = (tiny(ids, task=task).last_hidden_state[0] for task in ("sst", "sts"))
torch.testing.assert_close(h, theirs, atol=1e-5, rtol=1e-5)
print(
    f"ours and the library's: equal; with the other task's PAL the vectors differ by up to {(theirs - other).abs().max():.2f}"
)

# %% [markdown]
# From here on we import it. The library also knows `kind="low_rank"`, `"houlsby"`, `"sequential"` and `"sequential_fixed"`, padding masks,
# and saves a task's part apart from the encoder (`save_pals`).
#
# ## 5 Three promises
#
# ### It starts at BERT
#
# With $V^D = 0$ the layer is BERT's, whatever the rest is. The authors draw $V^D$ from $\mathcal N(0, 0.02^2)$ like everything else: that
# is not BERT any more, and the next cell measures how far it is. The library starts at zero (`init="zero"`).


# %%
def fresh(kind, tasks=("sst", "quora", "sts"), **options):
    """The pretrained encoder with parts of this kind for each task; sizes in proportion to its width."""
    encoder, _ = load_pretrained(size.model, device="cpu")
    D = encoder.config.hidden_size
    S = {"low_rank": round(100 * D / 768), "houlsby": round(50 * D / 768)}.get(
        kind, 12 * round(204 * D / 768 / 12)
    )
    return (
        add_pals(encoder, list(tasks), kind=kind, size=S, seed=seed, **options) if kind else encoder
    )


ids, mask = batch.input_ids[:8], batch.attention_mask[:8]
with torch.no_grad():
    plain = encoder(ids, mask).last_hidden_state
    for kind in ("pal", "low_rank", "houlsby", "sequential_fixed"):
        zero, normal = (
            (fresh(kind, init=init)(ids, mask, task="sst").last_hidden_state - plain).abs().max()
            for init in ("zero", "normal")
        )
        assert zero == 0
        print(
            f"{kind:>16}: largest difference {zero:.0f} with a start at zero, {normal:.3f} with a drawn one"
        )
print(f"the numbers themselves are about {plain.abs().mean():.2f} large")

# %% [markdown]
# Zero to the last bit. But can something learn that starts at zero? **Predict before you run.** Which parts of a PAL get a gradient in the
# first step?

# %%
from mmlkit.heads import LinearHead, PairHead
from mmlkit.training import MultitaskModel
from mmlkit.runtime import seeded

TASKS = ("sst", "quora", "sts")


def new_model(kind=None, pooling=None, **options):
    """The encoder, with parts of this kind, and a fresh head for each task; pairs are encoded apart."""
    pooling = pooling or size.pooling
    with seeded(seed, device):
        encoder = fresh(kind, **options)
        D = encoder.config.hidden_size
        heads = {
            "sst": LinearHead(D, 5, pooling=pooling),
            "quora": PairHead(D, 2, pooling=pooling),
            "sts": PairHead(D, 1, pooling=pooling),
        }
    return MultitaskModel(encoder, heads, tokenizer).to(device)


# %%
def some(task, rows=8):
    """A small batch of a task's training rows."""
    split = load_task(task, source, limit=rows, seed=seed).train
    return collate(
        encode(
            tokenizer,
            split,
            max_length=size.max_length,
            pairs="separate" if split.task.is_pair else "packed",
        ),
        range(rows),
    ).to(device)


def gradients(model, groups=("down", "query", "key", "value", "up")):
    """Norm of the gradient of the sst part, by what the weights are called."""
    model.zero_grad()
    model.eval().loss(some("sst")).total.backward()
    named = [
        (name, p.grad)
        for name, p in model.encoder.pals.part("sst").named_parameters()
        if name.endswith("weight")
    ]
    return {
        group: torch.stack([g.norm() for name, g in named if f"{group}.weight" in name])
        .norm()
        .item()
        for group in groups
    }


# %%
first = pd.DataFrame(
    {init: gradients(new_model("pal", init=init)) for init in ("zero", "normal")}
).rename_axis("gradient of")
none = 1e-5 * first.loc["up", "zero"]  # in the place of 0 a GPU may leave a rounding error
assert (first.loc[["down", "query", "key", "value"], "zero"] <= none).all() and none > 0
first.map("{:.1e}".format)

# %% [markdown]
# Everything before $V^D$ sends its signal through $V^D$, and that is 0. So in the first step $V^D$ moves alone; from the second on, all of it
# moves. It costs a step, not more. (With a drawn start queries and keys get far less than values: scores begin near 0, all tokens are weighed
# alike, and a little more or less of a score hardly changes that.)
#
# ### A task's part is its own
#
# A step on SST must not touch what belongs to Quora or STS. That is less certain than it sounds: an optimizer with momentum or weight decay
# moves every weight whose gradient is a tensor of zeros. `train_step` leaves it `None`.

# %%
from mmlkit.training import make_optimizer, train_step

model = new_model("pal")
optimizer = make_optimizer(model, lr=size.lr, head_lr=size.head_lr)
train_step(model, some("quora"), optimizer)  # from now on quora's weights have momentum
before = {key: value.clone() for key, value in model.state_dict().items()}
for _ in range(2):
    train_step(model, some("sst"), optimizer)
moved = pd.Series(
    {key: not torch.equal(value, before[key]) for key, value in model.state_dict().items()}
)
owner = moved.index.str.extract(r"(pals\.parts\.\w+|heads\.\w+)", expand=False).fillna(
    "encoder, shared"
)
moved.groupby(owner).agg(["sum", "count"]).set_axis(["tensors moved", "of"], axis=1).rename_axis(
    "two steps on sst, after one on quora"
)

# %%
assert not moved[
    owner.isin(["pals.parts.quora", "pals.parts.sts", "heads.quora", "heads.sts"])
].any()
assert (
    moved[owner == "heads.sst"].all()
    and moved[owner == "pals.parts.sst"].any()
    and moved[owner == "encoder, shared"].any()
)
print(
    "bit for bit as before: the parts and heads of quora and sts, although quora's have momentum from a step of their own"
)

# %% [markdown]
# ### With a frozen encoder, nothing is forgotten
#
# Quora's *predictions* have changed all the same, since the shared encoder moved. Freeze it and train the parts alone: then no task can harm
# another, and forgetting, the subject of notebook 10, is impossible by construction.

# %%
from mmlkit.training import predict_scores

texts = load_task("quora", source, limit=16, seed=seed).dev
model = new_model("pal", stay_trainable=True).freeze_encoder()
optimizer = make_optimizer(model, lr=size.head_lr)
scores = [predict_scores(model, texts)]
for _ in range(3):
    train_step(model.train(), some("sst"), optimizer)
scores.append(predict_scores(model, texts))
change = np.abs(scores[0] - scores[1]).max()
assert change <= (0 if device.type == "cpu" else 1e-5)  # a GPU may add in another order
print(f"three steps on sst; the largest change of quora's {scores[0].size} scores is {change:.0e}")

# %% [markdown]
# The price is that nothing is shared in training either: no task learns from another.
#
# ## 6 Why the sequential form cannot learn to attend
#
# The report tries a cheaper variant: one projected attention on top, which reads the final vector of [CLS] and hands its result to the head.
# Its scores stay far below, and it blames too little training. Look at the attention. There is *one* vector, so one key. The softmax of one
# score is
#
# $$\frac{e^s}{e^s} = 1,$$
#
# whatever $s$ is. **Predict before you run.** What is the gradient of the query and key?

# %%
model = new_model("sequential", pooling="cls")
repaired = new_model("sequential_fixed", init="normal")
second = pd.DataFrame(
    {"sequential": gradients(model), "sequential_fixed": gradients(repaired)}
).rename_axis("gradient of")
none = 1e-5 * second["sequential"].max()  # the same tolerance as above
assert (second.loc[["query", "key"], "sequential"] <= none).all()
assert (second["sequential_fixed"] > 0).all()
second.map("{:.1e}".format)

# %% [markdown]
# Zero, at any rate, after any number of steps; what is printed for query and key is rounding. Two of its three attention maps are dead
# weight. (`sequential_fixed` reads all tokens and adds to them instead of replacing: there they learn.)
#
# What is left is value after $V^E$, then $V^D$:
#
# $$\mathrm{TS}(x) = V^D \big(W_v (V^E x + b) + b'\big) + b''$$
#
# Three affine maps, which is one affine map. A test of "affine" that needs no formula: the image of a mean is the mean of the images.

# %%
part = model.encoder.pals.part("sst").eval()
with torch.no_grad():
    x, y = out.last_hidden_state[:50, :1].to(device), out.last_hidden_state[50:, :1].to(device)
    middle, mean = (
        part.transform_output((x + y) / 2, None, None),
        (part.transform_output(x, None, None) + part.transform_output(y, None, None)) / 2,
    )
    matrix = (
        part.projected.up.weight
        @ part.projected.attention[0].value.weight
        @ part.projected.down.weight
    )  # [D,D]
    constant = part.transform_output(torch.zeros_like(x), None, None)
    torch.testing.assert_close(middle, mean, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        part.transform_output(x, None, None), x @ matrix.T + constant, atol=1e-6, rtol=1e-4
    )
print(
    f"one matrix {list(matrix.shape)} of rank {torch.linalg.matrix_rank(matrix).item()}: the same map"
)

# %% [markdown]
# And the head after it is linear as well. So the two together are *one linear head*:

# %%
head = model.heads["sst"].eval()
weight = head.dense.weight @ matrix  # [C,D]
bias = head.dense.bias + head.dense.weight @ constant[0, 0]
with torch.no_grad():
    torch.testing.assert_close(
        head(part.transform_output(x, None, None)[:, 0]),
        x[:, 0] @ weight.T + bias,
        atol=1e-6,
        rtol=1e-4,
    )
print(
    f"sequential PAL and head, {count(part) + count(head):,} numbers; the one linear head that does the same, {weight.numel() + bias.numel():,}"
)

# %% [markdown]
# On one sentence the sequential form can compute what a linear head computes, and nothing else, so no training can make it better than a head
# without it. (For pairs the course's heads also take products or differences. There an affine map in front is not idle, but it is still no
# attention.)
#
# ### What 0.253 and 0.625 are
#
# That it *cannot be better* does not say that it must be *as bad* as it was. How bad was it? Always answering with one label has an accuracy
# too, the share of this label. In the course's dev sets: *positive* 279 of 1,101, *negative* 289 of 1,101, *no paraphrase* 12,627 of 20,212.

# %%
constants = {
    "Sentiment Acc": {"always positive": 279 / 1101, "always negative": 289 / 1101},
    "Para Acc": {"never a paraphrase": 12_627 / 20_212},
}
paper = published.tables("cs224n").query("table == 'Table 1'")
rows = [
    {
        "system": cell.row,
        "column": cell.column,
        "printed": cell.printed,
        "who answers": name,
        "has": round(value, 4),
    }
    for cell in paper.itertuples()
    for name, value in constants.get(cell.column, {}).items()
    if abs(cell.printed - value) < 0.0006
]
constant_cells = pd.DataFrame(rows)
assert len(constant_cells) == 8
constant_cells

# %% [markdown]
# Eight cells of Table 1 are models that say the same thing of every sentence. At no rate did a sequential PAL learn anything about sentiment.
# But its paraphrase accuracy reaches 0.73, so it was not idle everywhere; and two of the constant models are no sequential ones: they have a
# rate that was too high, and their encoder is destroyed.
#
# Why the same constant at three rates? A hint is the scale. Three matrices of small random numbers in a row make a vector small, and a head
# that reads a small vector gets small gradients:

# %%
with torch.no_grad():
    small, large = (
        part.transform_output(x, None, None).norm(dim=-1).mean().item(),
        x.norm(dim=-1).mean().item(),
    )
print(
    f"length of [CLS] {large:.2f}, of TS([CLS]) at the start {small:.4f}: {large / small:,.0f} times smaller"
)

# %% [markdown]
# So the head starts nearly blind, and what it could see would be no more than before. More training may heal the first, as the report hopes.
# It cannot heal the second.
#
# ## 7 Parameters against score, live
#
# Eight systems on small slices, the same batches for each:
#
# | system | encoder | a task's own, beside its head |
# |---|---|---|
# | heads alone | frozen | – |
# | PALs alone | frozen | PALs |
# | shared | trained | – |
# | PALs, low-rank, Houlsby | trained | one of the three |
# | sequential | trained | the report's form, on [CLS] |
# | sequential, repaired | trained | on all tokens, with a residual |
#
# MiniLM is half as wide as BERT-base, so the narrow widths are halved too. All parts but the report's start at zero.

# %%
from dataclasses import replace

sizes_of = {
    "fast": (dict(sst=160, quora=160, sts=96), 80, 8),
    "colab": (dict(sst=4000, quora=6000, sts=2000), 500, 16),
}
train_rows, dev_rows, batch_size = sizes_of.get(profile, ({}, None, 8))
dev = {name: load_task(name, source, limit=dev_rows, seed=seed).dev for name in TASKS}
data = {
    name: replace(load_task(name, source, limit=train_rows.get(name), seed=seed), dev=dev[name])
    for name in TASKS
}
print({name: f"{len(one.train):,} + {len(one.dev):,} rows" for name, one in data.items()})

# %%
SYSTEMS = {
    "heads alone": dict(frozen=True),
    "PALs alone": dict(frozen=True, kind="pal"),
    "shared": dict(),
    "PALs": dict(kind="pal"),
    "low-rank": dict(kind="low_rank"),
    "Houlsby": dict(kind="houlsby"),
    "sequential": dict(kind="sequential", pooling="cls"),
    "sequential, repaired": dict(kind="sequential_fixed"),
}
systems = list(systems or SYSTEMS)

# %%
from mmlkit.studies import overall_score
from mmlkit.training import fit


def run(frozen=False, kind=None, pooling=None):
    """The dev scores of one system, and how many numbers each task has for itself and all have together."""
    model = new_model(
        kind, pooling, **(dict(stay_trainable=frozen) if kind else {})
    ).freeze_encoder(frozen)
    optimizer = make_optimizer(model, lr=size.lr, head_lr=size.head_lr, pal_lr=size.head_lr)
    history = fit(
        model,
        data,
        epochs=epochs,
        batch_size=batch_size,
        max_length=size.max_length,
        precision=precision,
        seed=seed,
        optimizer=optimizer,
        freeze_encoder=frozen,
    )
    best = history[history["epoch"] == history.loc[history["best"], "epoch"].iloc[0]].set_index(
        "task"
    )
    scores = {
        "sst": best.loc["sst", "accuracy"],
        "quora": best.loc["quora", "accuracy"],
        "sts": best.loc["sts", "pearson"],
    }
    own = sum(map(count, model.heads.values())) + (count(model.encoder.pals) if kind else 0)
    return {
        **scores,
        "overall": overall_score(*scores.values()),
        "own": own / len(TASKS),
        "total": count(model),
    }


# %%
found = pd.DataFrame({name: run(**SYSTEMS[name]) for name in systems}).T
found["total / encoder"] = found["total"] / count(encoder)
found.round(3).assign(**{name: found[name].map("{:,.0f}".format) for name in ("own", "total")})


# %%
def standard_error(row):
    """Of the overall score, from the number of dev rows: two shares and half a correlation."""
    shares = [row[task] * (1 - row[task]) / len(dev[task]) for task in ("sst", "quora")]
    return (sum(shares) + ((1 - row["sts"] ** 2) / 2) ** 2 / len(dev["sts"])) ** 0.5 / 3


errors = {name: standard_error(row) for name, row in found.iterrows()}
plots.parameters_against_score(
    found["own"],
    found["overall"],
    errors,
    xlabel="parameters of one task's own, with its head",
    title="this run",
)
plt.show()

# %% [markdown]
# *A mark for each system at the parameters that belong to one task, on a logarithmic axis, and its overall score, with one standard error
# from the number of dev rows, as if the rows were independent.*
#
# `overall` is the course's score: the mean of two accuracies and of the correlation brought to 0..1.

# %%
error, ranked = np.mean(list(errors.values())), found["overall"].sort_values(ascending=False)
print(
    f"highest {ranked.index[0]} {ranked.iloc[0]:.3f}, lowest {ranked.index[-1]} {ranked.iloc[-1]:.3f}; one standard error is about {error:.3f}"
)
trained = [name for name in ("shared", "PALs", "low-rank", "Houlsby") if name in found.index]
apart = np.ptp(found.loc[trained, "overall"]) / error
print(
    f"{', '.join(trained)}: within {apart:.1f} standard errors;",
    "no order among them can be told" if apart < 3 else "some differ by more than chance",
)
if {"heads alone", "PALs alone"} <= set(found.index):
    gain = found.loc["PALs alone", "overall"] - found.loc["heads alone", "overall"]
    print(f"with the encoder frozen, PALs change the score by {gain:+.3f}")

# %%
from mmlkit.studies import constant_accuracies

always = max(constant_accuracies(dev["sst"]).values())
enough = always + 2 * np.sqrt(always * (1 - always) / len(dev["sst"]))
for name in [name for name in systems if name.startswith("sequential")]:
    told = (
        "it has learnt something"
        if found.loc[name, "sst"] > enough
        else "hardly more than a constant"
    )
    print(
        f"{name}: sst {found.loc[name, 'sst']:.3f}, the best constant answer {always:.3f}: {told}"
    )

# %% [markdown]
# One run of each system with one seed on small slices says little about an order. A system that is no better than a constant here may learn
# with more rows or epochs, and after so few steps a trained encoder may even stay behind a frozen one. The number of parameters and the
# score are not related by any law: it also matters where they stand and whether a gradient reaches them.
#
# ## 8 The published numbers
#
# The report's Table 1, each overall score worked out again from the three columns beside it, and ours where recorded runs are there (`mmlkit
# reproduce cs224n-table1`; all twelve systems). *Own* is what one task has in BERT-base beside its head.

# %%
from pathlib import Path

from mmlkit.batch import read_result


def short(row):
    """The name of a row of Table 1 in experiments/cs224n-table1.toml."""
    for part in ("Task ", " steps", " PALs", ", lr:"):
        row = row.replace(part, "")
    return row.lower().replace(" ", "-")


recorded = [
    read_result(file) for file in sorted(Path("../results/cs224n-table1-fast").glob("*.json"))
]
print(
    f"{len(recorded)} recorded runs, mmlkit {recorded[0]['versions']['mmlkit']} on {recorded[0]['device']}"
    if recorded
    else "results/cs224n-table1-fast holds no runs, so our columns stay empty; mmlkit reproduce cs224n-table1 makes them."
)

# %%
scores = [
    (one["parameters"]["system"], score["value"])
    for one in recorded
    for score in one["scores"]
    if score["on"] == "overall"
]
ours = (
    pd.DataFrame(scores, columns=["system", "ours"])
    .astype({"ours": float})
    .groupby("system")["ours"]
    .agg(ours="mean", sd="std", seeds="count")
)
overall = (
    paper[paper["metric"] == "overall"]
    .set_index("row")[["printed", "recomputed"]]
    .rename(short)
    .rename(columns={"printed": "published"})
)
beside = overall.join(ours)
beside.insert(
    0,
    "own",
    [
        {"sequential": by_hand["sequential"], "parallel": by_hand["pal"]}.get(name.split("-")[0], 0)
        for name in beside.index
    ],
)
beside.round(3).astype(object).assign(own=beside["own"].map("{:,}".format)).fillna("").rename_axis(
    ""
)

# %%
for name, row in beside[(beside["published"] - beside["recomputed"]).abs() > 0.00051].iterrows():
    print(f"{name}: printed {row['published']:.3f}, but its columns give {row['recomputed']:.4f}")
for column in ("published", "ours"):
    gains = {
        kind: beside.loc[f"{kind}-1e-5", column] - beside.loc["sampling-3k-1e-5", column]
        for kind in ("parallel", "sequential")
    }
    if not np.isnan(list(gains.values())).any():
        print(
            f"{column}, against sampling alone:",
            ", ".join(f"{kind} PALs {gain:+.3f}" for kind, gain in gains.items()),
        )

# %%
shown = {
    "sampling alone": "sampling-3k-1e-5",
    "sequential PALs": "sequential-1e-5",
    "parallel PALs": "parallel-1e-5",
}
heads = 5 * 768 + 5  # of sst, the largest that the report describes
panels = [
    column for column in ("published", "ours") if beside[column].notna().any()
]  # ours where there are recorded runs
with plots.style():
    fig, axes = plt.subplots(
        1,
        len(panels),
        figsize=(5.3 * len(panels) + 1, 3.4),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for ax, column in zip(axes[0], panels):
        there = beside.loc[list(shown.values()), column].set_axis(list(shown)).dropna()
        own = {name: beside.loc[shown[name], "own"] + heads for name in there.index}
        plots.parameters_against_score(own, there, title=column, ax=ax)
    plt.show()

# %% [markdown]
# *A mark each for sampling alone, sequential and parallel PALs at the rate 1e-5, at the parameters of one task's own. Published, the
# sequential form lies far below the two others. A second panel has ours where runs are recorded.*
#
# Published, parallel PALs gain 0.013 over sampling alone, and cost 5 % more parameters. It is one run each, and the table holds each run's
# best epoch on the split that it is judged by. Among twelve systems, the highest is somewhat lucky by selection alone. The claim about the
# *sequential* form needs no statistics: it follows from the algebra.
#
# ## Exercises
#
# ### Exercise 1: the parameters of a PAL
#
# ● ○ ○ · 10 minutes. The count of section 1 as a function, biases and all.


# %%
def my_pal_parameters(D, S, L, T):
    """D: hidden size, S: projected size, L: layers, T: tasks. Returns how many numbers the PALs of all tasks have."""
    ...


_ = checks.check_pal_parameters(my_pal_parameters)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A linear map from $a$ to $b$ numbers has $ab + b$. What is there once, and what in each layer?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return T * ((D * S + S) + (S * D + D) + 3 * L * (S * S + S))
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the layer with a PAL
#
# ● ● ○ · 10 minutes. The layer of section 3. All four functions take and give `[T, D]`.


# %%
def my_layer(h, MH, FFN, TS, LN):
    """h [T,D]; MH, FFN, TS and LN are functions. Returns the layer's output [T,D]."""
    ...


_ = checks.check_projected_layer(my_layer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two lines. The first gives `a`; the second has three terms inside its LN.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# a = LN(h + MH(h))
# return LN(a + FFN(a) + TS(h))
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: the effect of the GELU
#
# ● ● ● · 20 minutes, and the machine's time. Is it the gelu? Add `gelu=True` to
# `new_model("pal", ...)`, check that the start is still BERT's, and run section 7 for both with
# three seeds. And what does the gradient of $V^D$ at the zero start become, and why?
#
# <details><summary>Hint</summary>
#
# `fresh` hands further options on to `add_pals`. The derivative of GELU at 0 is ½.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# print(gradients(new_model("pal"))["up"], gradients(new_model("pal", gelu=True))["up"])
# for seed in (1, 2, 3):
#     for gelu in (False, True):
#         model = new_model("pal", gelu=gelu)
#         history = fit(model, data, epochs=epochs, batch_size=batch_size, max_length=size.max_length, precision=precision, seed=seed,
#                       optimizer=make_optimizer(model, lr=size.lr, head_lr=size.head_lr, pal_lr=size.head_lr))
#         print(seed, gelu, history[["task", "accuracy", "pearson"]].to_string(index=False))
# ```
#
# GELU(0) = 0, so the start stays; the gradient is halved, since the slope there is ½. Three seeds will hardly tell the two apart.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *"this encoder has parts for ..."*: an encoder with PALs has to be told whose to use, `encoder(..., task="sst")`. A `MultitaskModel` does
#   it by itself.
# - *"size ... is not a multiple of num_heads"*: each head gets `size / num_heads` numbers. 204 goes with 12 and with 6.
# - *All scores are those of a constant*: compare with `mmlkit.studies.constant_accuracies`. Either the rate was too high and the encoder is
#   destroyed, or nothing reaches the head.
#
# ## Takeaways
#
# - Three quarters of BERT's numbers are in its layers, two thirds of these in the feed-forward networks; a task of its own costs a sixtieth.
# - A PAL lets tokens see each other in a way of the task's own. Low-rank layers and adapters of the same price do not.
# - The second residual is $a$. Whether a formula is right can be tested: with nothing added it has to be BERT.
# - $V^D = 0$ starts at BERT exactly, at the price of one step in which only $V^D$ learns.
# - Attention over one vector is a linear map. Before you blame the training, look at which gradients are zero.
#
# ## References
#
# Stickland and Murray (2019), *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*, ICML. Houlsby et
# al. (2019), *Parameter-Efficient Transfer Learning for NLP*, ICML. Hu and Xiao, *Multitask BERT*, CS224N default project report. Devlin et
# al. (2019), *BERT*, NAACL.
#
# Before: [10 Annealed sampling](10_annealed_sampling.ipynb). Next: [12 Putting it together](12_putting_it_together.ipynb).
