# %% [markdown]
# # 01 minBERT: attention on three tokens, then the layer, then the model, then real weights
#
# At the end you will have written BERT's encoder yourself, in fewer than forty lines, and it will give the same
# numbers as the published implementation, on real weights.
#
# | | |
# |---|---|
# | Time to read and try | 60 to 90 minutes |
# | Time to run | `fast`: half a minute on two CPU cores; `colab`, `paper`: some minutes for a download of 440 MB |
# | Memory | `fast`: under 1 GB; `colab`, `paper`: about 2 GB |
# | Hardware | a CPU is enough; nothing is trained here |
# | Read before | notebook [00](00_start_here.ipynb); matrix products and the softmax |
# | Papers | Vaswani et al. 2017, section 3.2; Devlin et al. 2019, section 3; the CS224N minBERT handout |
#
# ## You will be able to
#
# 1. work out attention for three tokens with a pencil;
# 2. write multi-head attention with a padding mask, and say why the mask is what it is;
# 3. build a BERT layer and the whole encoder, and check them against the library;
# 4. account for every one of BERT-base's 109,482,240 parameters;
# 5. look inside a trained model without fooling yourself.
#
# ![A BERT layer from left to right. The input h enters multi-head self-attention. The result and h are added and
# normalised, which gives a. The vector a enters the feed-forward network. The result and a, not h, are added and
# normalised, which gives the output.](images/01_layer.svg)
#
# BERT is this layer, twelve or twenty-four times in a row, with a table of word vectors in front. We go through the
# drawing from left to right.

# %% tags=["parameters"]
profile = (
    "fast"  # "fast": MiniLM, comes with the installation; "colab", "paper": BERT-base from the hub
)
seed = 0
output_dir = "../runs"  # this notebook writes nothing there; all notebooks share the parameter

# %%
try:
    import mmlkit
except ImportError:  # Colab: install the library from its one address
    from IPython import get_ipython

    get_ipython().run_line_magic(
        "pip", 'install -q "mmlkit[notebooks,minilm] @ git+https://github.com/mmlkit/mmlkit"'
    )
    import mmlkit
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from mmlkit import bert, checks, plots, profiles, runtime
from mmlkit.plots import sliders
from torch.nn import functional as F

# %%
settings = profiles.get_profile(profile)
torch.set_grad_enabled(False)  # nothing is trained here, so no gradients are kept
torch.set_printoptions(precision=3, sci_mode=False)
pd.options.display.max_colwidth = None
about = runtime.describe("cpu")
print(
    f"device {about['device']}, weights {settings.model}, mmlkit {mmlkit.__version__},",
    ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "transformers")),
)

# %% [markdown]
# ## 1. Attention on three tokens
#
# Take the words *the river bank*. *Bank* alone could be a bank of money; next to *river* it is not. Attention lets
# each token mix in a part of the others, so that the vector of *bank* can move towards *river*.
#
# We give each token two numbers that we made up, so that everything fits on paper.
#
# **Step 1, scores.** How well do two tokens match? The dot product of their vectors says so. For *bank* and *river*
# it is $1 \cdot 2 + 1 \cdot 0 = 2$.
#
# **Predict before you run.** The table below has one row for each token that looks and one column for each token that
# is looked at. In the row of *bank*, which two scores will be equal? Will *the* get a score of 0?

# %%
tokens = ["the", "river", "bank"]
x = torch.tensor(
    [
        [0.0, 1.0],  # the
        [2.0, 0.0],  # river
        [1.0, 1.0],
    ]
)  # bank
scores = x @ x.T
pd.DataFrame(scores.numpy(), index=tokens, columns=tokens)

# %% [markdown]
# *Bank* scores 2 with *river* and 2 with itself, $1 \cdot 1 + 1 \cdot 1$. With *the* it scores
# $1 \cdot 0 + 1 \cdot 1 = 1$.
#
# **Step 2, scaling.** Divide by $\sqrt{d}$, where $d = 2$ is the length of the vectors. We come back to the reason.
#
# **Step 3, softmax.** Turn a row of scores into positive weights with sum 1: take $e^{\text{score}}$, then divide by
# the sum. Here is the row of *bank*; check one number with a pocket calculator.

# %%
# NBVAL_CHECK_OUTPUT
scaled = scores[2] / 2**0.5
exponentials = scaled.exp()
weights = exponentials / exponentials.sum()
print("scores          ", scores[2])
print("divided by 1.414", scaled)
print("exponentials    ", exponentials, " sum", round(exponentials.sum().item(), 3))
print("weights         ", weights)

# %% [markdown]
# *The* keeps a fifth of the weight. A softmax never gives exactly 0 to anybody.
#
# **Step 4, mixing.** The new vector of *bank* is the weighted mean of all three vectors:
# $0.198 \cdot (0, 1) + 0.401 \cdot (2, 0) + 0.401 \cdot (1, 1) = (1.203,\ 0.599)$. The same for every row at once:

# %%
mixed = (x @ x.T / 2**0.5).softmax(-1) @ x
with plots.style():
    ax = plt.subplots(figsize=(4.5, 2.8), layout="constrained")[1]
    for token, old, new, colour, marker in zip(tokens, x, mixed, plots.COLOURS, plots.MARKERS):
        ax.plot(*old, marker, markersize=9, markerfacecolor="white", color=colour)
        ax.annotate(
            "",
            new,
            old,
            arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 6, "shrinkB": 5},
        )
        ax.plot(*new, marker, markersize=9, color=colour)
        ax.annotate(token, old, (8, 7), textcoords="offset points", color=colour)
    ax.set(
        xlabel="first number",
        ylabel="second number",
        xlim=(-0.15, 2.35),
        ylim=(-0.1, 1.25),
        title="Before (hollow) and after (filled)",
    )
    plt.show()

# %% [markdown]
# *What the figure shows:* three arrows in a plane, from each old vector to the new one. All three move inwards, since
# each becomes a mean. *Bank* moves from (1, 1) down and right, towards *river*.
#
# ### The equation, and its code with the same names
#
# $$\text{attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d}} + M\right) V
# \qquad Q = h W_Q + b_Q,\quad K = h W_K + b_K,\quad V = h W_V + b_V$$
#
# In the toy each token was its own query, key and value. In BERT, three learned maps make three vectors out of each
# token: the *query* says what it looks for, the *key* what it can be found by, the *value* what it passes on.
#
# | symbol | name | shape |
# |---|---|---|
# | $B$, $T$ | sentences in a batch, tokens in a sentence | numbers |
# | $D$, $H$ | hidden size, heads | numbers |
# | $d = D / H$ | width of one head | number |
# | $h$ | hidden states: one vector for each token | `[B, T, D]` |
# | $W_Q, W_K, W_V$ | weights of the three maps | `[D, D]` |
# | $Q, K, V$ | queries, keys, values, split into heads | `[B, H, T, d]` |
# | $M$ | mask: 0 for a token, very negative for padding | `[B, 1, 1, T]` |
# | softmax(...) | attention weights: who looks, who is looked at | `[B, H, T, T]` |
# | $a$ | after attention, its residual and LayerNorm | `[B, T, D]` |


# %%
def attention(Q, K, V, M=0.0):
    """The new vectors, and the weights that made them."""
    weights = (Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5 + M).softmax(-1)
    return weights @ V, weights


new, weights = attention(x, x, x)
print("weights\n", weights, "\nnew vectors\n", new, "\nsame as by hand:", torch.equal(new, mixed))

# %% [markdown]
# ### Why divide by $\sqrt{d}$?
#
# A dot product of two random vectors of length $d$ is a sum of $d$ terms. Its spread grows like $\sqrt{d}$.
#
# **Predict before you run.** Eight keys, drawn at random. With long vectors and no division, how large is the largest
# of the eight weights: near 1/8, or near 1?

# %%
sizes, largest = [2, 8, 32, 128, 512], {"not divided": [], "divided by √d": []}
with runtime.seeded(seed):
    for d in sizes:
        raw = torch.einsum("nd,nkd->nk", torch.randn(400, d), torch.randn(400, 8, d))
        for name, scale in zip(largest, (1, d**0.5)):
            largest[name].append((raw / scale).softmax(-1).amax(-1).mean().item())
with plots.style():
    ax = plt.subplots(figsize=(4.8, 2.6), layout="constrained")[1]
    for (name, values), marker, line in zip(largest.items(), plots.MARKERS, ("-", "--")):
        ax.plot(sizes, values, line, marker=marker, label=name)
    ax.axhline(1 / 8, color="grey", linewidth=1, linestyle=":", label="all equal: 1/8")
    ax.set_xscale("log", base=2)
    ax.set(
        xlabel="length d of the vectors",
        ylabel="largest of 8 weights (mean)",
        ylim=(0, 1.05),
        xticks=sizes,
    )
    ax.set_xticklabels(sizes)
    ax.legend()
    plt.show()

# %% [markdown]
# *What the figure shows:* two curves over the length of the vectors, 400 draws for each point. Undivided, the largest
# weight climbs towards 1: one key takes everything, and the softmax passes almost no gradient to the others. Divided
# by $\sqrt{d}$, it stays near 0.35 for all lengths.
#
# ### Padding: why a large negative number?
#
# Sentences of a batch must have equal length, so short ones are filled with `[PAD]`. No token may look at padding.
# The mask is *added to the scores*, before the softmax: $e^{\text{very negative}}$ is 0, and the rest still has
# sum 1. Setting weights to 0 after the softmax would leave rows with a sum below 1.

# %%
padded = torch.cat([x, torch.tensor([[3.0, 3.0]])])  # a loud [PAD], to make the point
is_token = torch.tensor([1, 1, 1, 0])
M = (1 - is_token) * torch.finfo(torch.float32).min / 2
new, weights = attention(padded, padded, padded, M)
assert torch.allclose(new[:3], mixed, atol=1e-6)  # the tokens have the same vectors as before
plots.attention(weights, [*tokens, "[PAD]"], title="With the mask")
plt.show()

# %% [markdown]
# *What the figure shows:* a table of four rows and four columns, coloured by weight. The column `[PAD]` has weight 0
# everywhere, even though its vector is the longest. The row `[PAD]` is still there: padding does look at others, and
# nobody looks at what it finds.
#
# ### Which large negative number?
#
# Four choices are in use: minus infinity, the −10,000 of the first BERT code, the smallest number of the dtype, and
# half of it. The hard case is a row in which *everything* is padding (an empty candidate in a batch, say), in half
# precision. We try a row of three masked scores, −20, −30 and −40.

# %%
for dtype in (torch.float32, torch.float16):
    row, lowest = torch.tensor([-20, -30, -40], dtype=dtype), torch.finfo(dtype).min
    for name, value in {
        "-inf": float("-inf"),
        "-10000": -1e4,
        "min": lowest,
        "min / 2": lowest / 2,
    }.items():
        print(
            f"{dtype}  {name:>7}  weights",
            [round(w, 2) for w in (row + value).softmax(-1).tolist()],
        )

# %% [markdown]
# With minus infinity the softmax computes $\infty - \infty$: the row is NaN, and one NaN spreads through the whole
# loss. The dtype's minimum has the same fault in `float16`: minimum plus a negative score overflows to minus
# infinity. Half of the minimum leaves room for any score. The weights of such a row mean nothing, but they are
# numbers, and the loss leaves them out. −10,000 works too as long as scores stay small. The library takes half of the
# minimum.
#
# ## 2. Several heads
#
# One softmax can point in one direction. BERT runs $H$ attentions side by side, each on its own slice of $d = D / H$
# features, and puts the results next to each other. Only the shapes are new. We use a small configuration and random
# hidden states.

# %%
# NBVAL_CHECK_OUTPUT
config = bert.BertConfig.tiny()
B, T, D, H = 2, 5, config.hidden_size, config.num_attention_heads
with runtime.seeded(seed):
    h, one_layer = torch.randn(B, T, D), bert.BertLayer(config).eval()
heads = h.view(B, T, H, D // H).transpose(1, 2)  # [B,T,D] -> [B,T,H,d] -> [B,H,T,d]
print("h", list(h.shape), " split", list(heads.shape))
print("merging undoes splitting:", torch.equal(heads.transpose(1, 2).reshape(B, T, D), h))

# %% [markdown]
# The `transpose` matters. `h.view(B, H, T, d)` has the right shape too, but it cuts sentences into pieces and mixes
# tokens.
#
# **Checkpoint.** Now the whole of self-attention, and right away the comparison: the same weights, the same input and
# the same mask in `mmlkit.bert.BertSelfAttention`. The second sentence ends with two tokens of padding.


# %%
# NBVAL_CHECK_OUTPUT
def self_attention(part, h, M=0.0):
    """part: anything with .query, .key, .value and .num_heads. [B,T,D] to [B,T,D]."""
    B, T, D = h.shape
    Q, K, V = (
        linear(h).view(B, T, part.num_heads, -1).transpose(1, 2)
        for linear in (part.query, part.key, part.value)
    )
    return attention(Q, K, V, M)[0].transpose(1, 2).reshape(B, T, D)


attention_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
M = bert.BertModel.additive_mask(attention_mask, h)
theirs = one_layer.attention.self(h, M)
torch.testing.assert_close(
    self_attention(one_layer.attention.self, h, M), theirs, atol=1e-6, rtol=1e-5
)
print("mask", list(M.shape), " equal to 1e-6: True")

# %% [markdown]
# ## 3. The layer
#
# **Residual and LayerNorm.** What attention found is *added* to what was there, then each token's vector is shifted
# to mean 0, scaled to variance 1, and stretched by a learned $g$ and $b$ (Ba et al. 2016):
#
# $$\text{LayerNorm}(x) = g \cdot \frac{x - \text{mean}(x)}{\sqrt{\text{var}(x) + \varepsilon}} + b$$
#
# Mean and variance run over the $D$ features of one token. Other tokens and other sentences play no part. BERT's
# $\varepsilon$ is $10^{-12}$.


# %%
def layer_norm(x, g, b, eps=1e-12):
    """[..., D] to [..., D]; the variance divides by D, not D - 1."""
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return g * (x - mean) / (var + eps).sqrt() + b


numbers = torch.tensor([1.0, 2.0, 6.0])
by_hand = layer_norm(numbers, g=1.0, b=0.0)
print(
    "1, 2, 6 becomes",
    by_hand,
    " same as torch:",
    torch.allclose(by_hand, F.layer_norm(numbers, (3,))),
)

# %% [markdown]
# By hand: the mean is 3, the differences are −2, −1 and 3, their mean square is 14/3, its root 2.16.
#
# **GELU.** Between the two maps of the feed-forward network stands $\text{GELU}(x) = x \, \Phi(x)$, where $\Phi$ is
# the normal distribution function (Hendrycks and Gimpel 2016). Many programs use an approximation with $\tanh$.
# BERT's is the exact one.

# %%
points = torch.linspace(-5, 5, 501)
exact, approximate = (
    points * (1 + torch.erf(points / 2**0.5)) / 2,
    F.gelu(points, approximate="tanh"),
)
with plots.style():
    left, right = plt.subplots(1, 2, figsize=(6.2, 2.1), layout="constrained")[1]
    left.plot(points, exact, label="exact")
    left.plot(points, approximate, "--", label="with tanh")
    left.set(xlabel="x", ylabel="GELU(x)")
    left.legend()
    right.plot(points, (approximate - exact) * 1e4)
    right.set(xlabel="x", ylabel="tanh minus exact, 1e-4")
    plt.show()

# %% [markdown]
# *What the figure shows:* on the left, both versions lie on one line: near 0 for negative x, near x for positive x,
# with a small dip to −0.17 in between. On the right, their difference waves up and down and stays within 5/10,000.
# That is harmless in training, and fifty times too much if you want to reproduce a published model to five digits.
#
# **The layer from its pieces.** With $a$ in the middle of the drawing:
#
# $$a = \text{LayerNorm}(h + W_O\,\text{attention}(h) + b_O) \qquad
# h' = \text{LayerNorm}(a + W_2\,\text{GELU}(W_1 a + b_1) + b_2)$$
#
# (In training, dropout acts on the attention weights and on what comes out of $W_O$ and $W_2$. Here it is off.)


# %%
def add_norm(part, x, residual):
    """part: anything with .dense and .LayerNorm."""
    return layer_norm(residual + part.dense(x), part.LayerNorm.weight, part.LayerNorm.bias)


def bert_layer(layer, h, M=0.0):
    """[B,T,D] to [B,T,D]."""
    a = add_norm(layer.attention.output, self_attention(layer.attention.self, h, M), h)
    wide = F.gelu(layer.intermediate.dense(a))
    return add_norm(layer.output, wide, a)


torch.testing.assert_close(bert_layer(one_layer, h, M), one_layer(h, M), atol=1e-5, rtol=1e-5)
print("layer by hand and mmlkit.bert.BertLayer, equal to 1e-5: True")

# %% [markdown]
# ### A mistake worth knowing
#
# In some drawings and programs the second residual starts at $h$, the input of the layer, not at $a$. All shapes fit.
# The model trains. It is another model.
#
# **Predict before you run.** How similar are the two results: cosine near 1, or far less?


# %%
def misprinted_layer(layer, h, M=0.0):
    """As bert_layer, but with the wrong second residual."""
    a = add_norm(layer.attention.output, self_attention(layer.attention.self, h, M), h)
    return add_norm(layer.output, F.gelu(layer.intermediate.dense(a)), h)


right, wrong = one_layer(h, M), misprinted_layer(one_layer, h, M)
print(
    f"one fresh layer: cosine {F.cosine_similarity(right, wrong, dim=-1).mean():.3f},",
    f"largest difference {(right - wrong).abs().max():.2f}",
)

# %% [markdown]
# For one fresh layer the two are close enough to be overlooked, and no shape complains. Section 5 repeats the
# comparison with trained weights.
#
# ## 4. The model
#
# **Embeddings.** A tokenizer cuts text into word pieces and gives each a number. Pairs of sentences become one row:
# `[CLS] first [SEP] second [SEP]`. Attention has no sense of order, so BERT adds three learned vectors: one for the
# word piece, one for the position, one for the segment (0 for the first sentence, 1 for the second;
# `token_type_ids`).
#
# (The minBERT of CS224N sets all segments to 0, also for pairs. The library passes on what you give it.)
#
# We load the tokenizer now, together with the trained weights that section 5 uses.

# %%
# NBVAL_CHECK_OUTPUT
encoder, tokenizer = bert.load_pretrained(settings.model, device="cpu")
pair = tokenizer("Is the bank open?", "It closes at noon.", return_tensors="pt")
pd.DataFrame(
    {
        "piece": tokenizer.convert_ids_to_tokens(pair.input_ids[0]),
        "input_ids": pair.input_ids[0],
        "position": range(pair.input_ids.shape[1]),
        "token_type_ids": pair.token_type_ids[0],
    }
).T


# %%
def embed(part, input_ids, token_type_ids):
    """[B,T] numbers to [B,T,D] vectors."""
    positions = torch.arange(input_ids.shape[1])
    summed = (
        part.word_embeddings.weight[input_ids]
        + part.position_embeddings.weight[positions]
        + part.token_type_embeddings.weight[token_type_ids]
    )
    return layer_norm(summed, part.LayerNorm.weight, part.LayerNorm.bias)


with runtime.seeded(seed):  # a tiny, untrained model with the real vocabulary
    tiny = bert.BertModel(bert.BertConfig.tiny(vocab_size=len(tokenizer))).eval()
h = embed(tiny.embeddings, pair.input_ids, pair.token_type_ids)
theirs = tiny.embeddings(pair.input_ids, pair.token_type_ids)
print(list(h.shape), " equal to 1e-5:", torch.allclose(h, theirs, atol=1e-5))

# %% [markdown]
# **The whole encoder** is the embeddings, a loop over layers, and a *pooler*: one more map and a $\tanh$ on the
# vector of `[CLS]`, for tasks that want one vector for the whole text.


# %%
# NBVAL_CHECK_OUTPUT
def my_bert(model, input_ids, token_type_ids, attention_mask, layer_function=bert_layer):
    """Every token's last vector [B,T,D], and the pooled vector [B,D]."""
    h = embed(model.embeddings, input_ids, token_type_ids)
    M = (1 - attention_mask)[:, None, None, :] * torch.finfo(h.dtype).min / 2
    for layer in model.encoder.layer:
        h = layer_function(layer, h, M)
    return h, torch.tanh(model.pooler.dense(h[:, 0]))


mine, theirs = my_bert(tiny, **pair), tiny(**pair)
torch.testing.assert_close(mine, tuple(theirs), atol=1e-5, rtol=1e-5)
print(
    "last_hidden_state",
    list(mine[0].shape),
    " pooler_output",
    list(mine[1].shape),
    " equal to 1e-5: True",
)

# %% [markdown]
# **Checkpoint.** That is all of BERT's encoder. From here on we use `mmlkit.bert.BertModel`.
#
# ### Where do 109,482,240 parameters come from?
#
# With $V$ words, $P$ positions, $L$ layers, hidden size $D$ and feed-forward width $I$. A linear map from $m$ to $n$
# has $mn$ weights and $n$ biases. The heads do not appear: $H$ slices of $D/H$ features need as many weights as one
# of $D$.
#
# **Predict before you run.** Which part of BERT-base is largest: the word table, all attention maps together, or all
# feed-forward networks together?


# %%
# NBVAL_CHECK_OUTPUT
def count_parameters(c):
    """The terms of the sum, by name, for a BertConfig."""
    D, inner, L = c.hidden_size, c.intermediate_size, c.num_hidden_layers
    return {
        "word table: V D": c.vocab_size * D,
        "position and segment tables: (P + 2) D": (c.max_position_embeddings + c.type_vocab_size)
        * D,
        "LayerNorms: (2 L + 1) 2 D": (2 * L + 1) * 2 * D,
        "query, key, value, output: L 4 (D² + D)": L * 4 * (D * D + D),
        "feed-forward: L (2 D I + I + D)": L * (2 * D * inner + inner + D),
        "pooler: D² + D": D * D + D,
    }


kinds = {
    "BERT-base": bert.BertConfig.base(),
    "BERT-large": bert.BertConfig.large(),
    "this notebook's": encoder.config,
}
terms = pd.DataFrame({name: count_parameters(c) for name, c in kinds.items()})
terms.loc["sum"] = terms.sum()
with torch.device("meta"):  # shapes only: no memory for the numbers
    terms.loc["counted in the model"] = [
        sum(p.numel() for p in bert.BertModel(c).parameters()) for c in kinds.values()
    ]
terms.map("{:,}".format)

# %% [markdown]
# In BERT-base the feed-forward networks hold 56.7 million parameters, the attention maps half of that, 28.3, and the
# word table 23.4. Everything else is below one million.
#
# ## 5. Real weights
#
# The encoder we loaded has the same parameter names as the `BertModel` of the transformers library. So we save it,
# let transformers open the folder with its own code, and compare all numbers on real tokens. In the fast profile it
# is MiniLM (Wang et al. 2020), a small BERT that was then trained for sentence similarity.
#
# Beside it runs your own encoder, on the same weights, once with the right and once with the misprinted layer.

# %%
import tempfile

from transformers import AutoModel

texts = ["The kettle did not fit on the shelf because it was too tall.", "Is the bank open?"]
batch = tokenizer(texts, padding=True, return_tensors="pt")
with tempfile.TemporaryDirectory() as folder:
    bert.save_pretrained(encoder, tokenizer, folder)
    published = AutoModel.from_pretrained(folder).eval()
real = batch.attention_mask.bool()
theirs = published(**batch).last_hidden_state[real]
tolerance = 1e-5 if profile == "fast" else 1e-4  # BERT-base has more layers, so more rounding
found = {
    "mmlkit": encoder(**batch)[0][real],
    "yours": my_bert(encoder, **batch)[0][real],
    "yours, misprinted layer": my_bert(encoder, **batch, layer_function=misprinted_layer)[0][real],
}
torch.testing.assert_close(found["mmlkit"], theirs, atol=tolerance, rtol=1e-5)
pd.DataFrame(
    {
        name: {
            f"all within {tolerance:.0e}": torch.allclose(ours, theirs, atol=tolerance),
            "mean cosine": f"{F.cosine_similarity(ours, theirs, dim=-1).mean():.3f}",
        }
        for name, ours in found.items()
    }
)

# %% [markdown]
# With trained weights the wrong residual destroys the result. This is why it pays to compare with a reference, and
# not only to look at shapes or at a falling loss.
#
# ## 6. First looks at a trained model
#
# **Where do heads look?** `BertSelfAttention.probabilities` gives the weights of a layer for the hidden states that
# enter it. We walk through the layers and keep them all. Layers and heads count from 0.


# %%
def attention_maps(text):
    """The tokens of a text, and all weights [L,H,T,T]."""
    ids = tokenizer(text, return_tensors="pt").input_ids
    h, maps = encoder.embeddings(ids, torch.zeros_like(ids)), []
    for layer in encoder.encoder.layer:
        maps.append(layer.attention.self.probabilities(h)[0])
        h = layer(h)
    return tokenizer.convert_ids_to_tokens(ids[0]), torch.stack(maps)


tokens, maps = attention_maps(texts[0])
print(list(maps.shape), "layers, heads, tokens that look, tokens looked at")

# %%
previous = maps.diagonal(-1, dim1=2, dim2=3).mean(-1)  # from each token to the one before it
looks = {"previous token": previous, "[CLS]": maps[..., 0].mean(-1)}
with plots.style():
    axes = plt.subplots(1, 2, figsize=(8, 2.5), sharey=True, layout="constrained")[1]
    for ax, (name, values) in zip(axes, looks.items()):
        image = ax.imshow(values.numpy(), vmin=0, vmax=1, aspect="auto")
        ax.set(
            xlabel="head", ylabel="layer", title=f"Mean weight on the {name}".replace("the [", "[")
        )
        ax.set(xticks=range(values.shape[1]), yticks=range(values.shape[0]))
        ax.grid(False)
    plt.colorbar(image, ax=axes, label="attention weight")
    plt.show()

# %% [markdown]
# *What the figure shows:* two tables, layers downwards and heads to the right, bright where the weight is large. On
# the left one cell stands out: in MiniLM, head 2 of layer 0 puts nearly all its weight on the previous token. On the
# right many cells from layer 1 on are bright: those heads look at `[CLS]` most of the time. A head must put its
# weight somewhere, and a special token seems to be its resting place (Clark et al. 2019 describe both patterns in
# BERT-base).
#
# **Explore.** In a live notebook the next cell has two sliders, for the layer and for the head. They start at the
# head that looks most at the previous token. Can you find a head in which many tokens look at the
# *next* token? (Exercise 3 does it by code.)


# %%
def draw(layer, head):
    with plots.style():
        ax = plt.subplots(figsize=(4.8, 3.7), layout="constrained")[1]
        plots.attention(maps[layer, head], tokens, title=f"Layer {layer}, head {head}", ax=ax)


sharpest = divmod(int(previous.argmax()), previous.shape[1])
layers, heads = map(range, previous.shape)
sliders(draw, start=dict(zip(("layer", "head"), sharpest)), layer=layers, head=heads)

# %% [markdown]
# *What the figure shows:* weights as a square, one row for each token that looks. The bright cells form a line right
# below the diagonal: each row looks at the token to its left. `[CLS]` has none to its left and looks at itself. Such
# a tidy head is the exception; move the sliders and you will see mostly faint patterns.
#
# ### Does a head know what *it* is?
#
# *The kettle did not fit on the shelf because **it** was too tall.* Among all heads, we pick the one in which *it*
# looks most at *kettle*. That is picking the winner after the race. So we try the head on sentences it was *not*
# picked on; one of them changes *tall* to *narrow*, so that *it* should now be the shelf.

# %%
layer, head = divmod(
    int(maps[:, :, tokens.index("it"), tokens.index("kettle")].argmax()), maps.shape[1]
)
rows = []
for text, nouns in (
    (texts[0], ("kettle", "shelf")),
    (texts[0].replace("tall", "narrow"), ("kettle", "shelf")),
    ("The farmer sold the horse because it was too old.", ("farmer", "horse")),
    ("My sister painted the door while it was raining.", ("sister", "door")),
):
    words, found = attention_maps(text)
    rows.append(
        [
            text,
            *(
                f"{noun} {found[layer, head, words.index('it'), words.index(noun)]:.2f}"
                for noun in nouns
            ),
        ]
    )
pd.DataFrame(
    rows, columns=[f"layer {layer}, head {head}", "it to the first noun", "it to the second"]
)

# %% [markdown]
# In MiniLM the head does more than look at the first noun: with *farmer* and *horse* it takes the horse. But *narrow*
# changes nothing, the weight stays on the kettle. The head links *it* to a likely thing; it does not solve the riddle
# (such pairs are called Winograd schemas). An attention map is a hint for a hypothesis, not an explanation (Jain and
# Wallace 2019).
#
# ### Similarity of sentences
#
# One vector for a sentence: the mean of its tokens' last vectors, padding left out (*mean pooling*).
#
# **Predict before you run.** Sentences 1, 2 and 3 share the word *bank*, sentences 3 and 4 the word *interest*. Does
# the model group them by word or by meaning?

# %%
sentences = [
    "She sat on the bank of the river.",
    "He fished from the river bank.",
    "The bank raised its interest rates.",
    "My savings account pays little interest.",
    "The soup needs more salt.",
    "Add a pinch of salt to the broth.",
]


def sentence_vectors(texts):
    """Mean pooling, then length 1: [N,D]."""
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    weight = batch.attention_mask[..., None]
    return F.normalize((encoder(**batch).last_hidden_state * weight).sum(1) / weight.sum(1), dim=-1)


vectors = sentence_vectors(sentences)
print(list(vectors.shape), "one vector for each sentence")

# %%
cosines = (vectors @ vectors.T).numpy()
names = ["river 1", "river 2", "money 3", "money 4", "salt 5", "salt 6"]
with plots.style():
    ax = plt.subplots(figsize=(4.4, 2.8), layout="constrained")[1]
    ax.imshow(cosines, vmin=0, vmax=1, aspect="auto")
    for i, j in np.ndindex(6, 6):
        colour = "black" if cosines[i, j] > 0.45 else "white"
        ax.text(j, i, f"{cosines[i, j]:.2f}", ha="center", va="center", color=colour)
    ax.set_xticks(range(6), range(1, 7))
    ax.set_yticks(range(6), names)
    ax.set(xlabel="sentence", ylabel="sentence", title="Cosine")
    ax.grid(False)
    plt.show()

# %% [markdown]
# *What the figure shows:* a table of cosines between six sentences. In MiniLM three blocks of two stand out on the
# diagonal (0.52, 0.47 and 0.53): rivers, money, cooking. *Bank* still links rivers and money a little (0.13 to 0.32),
# more than either is linked to cooking (at most 0.09). BERT-base was never trained for similarity; expect higher
# cosines everywhere and fainter blocks.
#
# ### Padding changes nothing
#
# The mask promises that a sentence has the same vectors alone and in a batch with longer ones. We pad one to forty
# tokens and look.

# %%
alone = tokenizer(sentences[1], return_tensors="pt")
filled = tokenizer(sentences[1], padding="max_length", max_length=40, return_tensors="pt")
n, reference = alone.input_ids.shape[1], encoder(**alone).last_hidden_state
with_mask = encoder(**filled).last_hidden_state[:, :n]
without = encoder(filled.input_ids).last_hidden_state[:, :n]  # mask forgotten
print("with the mask, equal to 1e-5:", torch.allclose(with_mask, reference, atol=1e-5))
print(f"mask forgotten: largest difference {(without - reference).abs().max():.2f}")

# %% [markdown]
# ### A look at cost: the last layer for `[CLS]` alone
#
# A classifier often reads only the vector of `[CLS]`. Then the last layer need not compute the others: keys and
# values of all tokens, but one query. `first_token_only=True` does that.
#
# **Predict before you run.** By which share does the arithmetic fall in a model of six layers? In one of twelve?

# %%
from torch.utils.flop_counter import FlopCounterMode

ids = torch.randint(1000, 20000, (8, 64), generator=torch.Generator().manual_seed(seed))
outputs, work = {}, {}
for first_token_only in (False, True):
    with FlopCounterMode(display=False) as counter:
        outputs[first_token_only] = encoder(ids, first_token_only=first_token_only)
    work[first_token_only] = counter.get_total_flops()
same = torch.allclose(outputs[True].pooler_output, outputs[False].pooler_output, atol=1e-5)
print("last_hidden_state", *(list(outputs[flag].last_hidden_state.shape) for flag in (False, True)))
print(
    f"pooled [CLS] equal to 1e-5: {same}, arithmetic {work[True] / work[False]:.1%} of the full forward pass"
)

# %% [markdown]
# Only the last layer gets cheaper, and it keeps its keys and values: 2 of its 12 $D^2$ products for each token. So
# 5/6 of one layer falls away: 14% of six layers, 7% of twelve, leaving aside attention's own products. The numbers are
# the same, so it costs nothing.
#
# ## Exercises
#
# ### Exercise 1: attention from memory
#
# ● ○ ○ · 10 minutes. Do not scroll up. Write attention for one head. The mask has
# 1 for a token and 0 for padding.


# %%
def my_attention(query, key, value, mask):
    """query, key, value [T,d], mask [T]; returns [T,d]."""
    # your lines go here


right = checks.check_attention(my_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three lines: scores, weights, mix. `scores.masked_fill(mask == 0, -1e9)` writes a large negative number into the
# columns of padding.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_attention(query, key, value, mask):
#     scores = query @ key.T / query.shape[-1] ** 0.5
#     scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min / 2)
#     return scores.softmax(-1) @ value
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: a model without order
#
# ● ● ○ · 15 minutes. Leave the position vectors out of the embeddings (word +
# segment, then LayerNorm), run all layers, and take the mean over tokens. What happens to *The dog bit the man* and
# *The man bit the dog*? First predict, then compute.


# %%
def without_positions(text):
    """The mean vector [1,D] of a text when no position is added."""
    # your lines go here


bites = ["The dog bit the man.", "The man bit the dog."]
print(f"with positions {F.cosine_similarity(*sentence_vectors(bites), dim=0):.4f}")
one, two = map(without_positions, bites)
print(
    "without",
    "not yet" if one is None else f"{F.cosine_similarity(one, two).item():.4f}",
    "(expected 1.0000)",
)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take `embed` from section 4 and drop one term. `encoder.embeddings.word_embeddings(ids)` looks rows up, as
# `weight[ids]` does. The layers can be called with hidden states alone.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def without_positions(text):
#     ids = tokenizer(text, return_tensors="pt").input_ids
#     part = encoder.embeddings
#     h = part.LayerNorm(part.word_embeddings(ids) + part.token_type_embeddings(torch.zeros_like(ids)))
#     for layer in encoder.encoder.layer:
#         h = layer(h)
#     return h.mean(1)
# ```
#
# Both sentences have the same words, and attention treats its input as a set. Without positions the vectors are the
# same ones in another order, so their means agree. Within a segment, order enters through the
# position vectors alone.
#
# </details>

# %% [markdown]
# ### Exercise 3: find the head
#
# ● ● ● · 20 minutes. For weights `[L,H,T,T]` compute for each head the mean weight from a
# token to the *next* one. Which head has the largest? Does it stay the winner on another sentence?


# %%
def next_token_score(maps):
    """[L,H,T,T] to [L,H]."""
    # your lines go here


for text in (texts[0], "The river bank was muddy, but the fishermen stayed until dusk."):
    score = next_token_score(attention_maps(text)[1])
    found = (
        "not yet"
        if score is None
        else f"{divmod(int(score.argmax()), score.shape[1])}, weight {score.max():.2f}"
    )
    print(f"layer and head: {found} (expected for MiniLM: (1, 8), weight 0.5 to 0.65)")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The previous token was the diagonal with offset −1. The mean runs over the tokens that have a next one.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def next_token_score(maps):
#     return maps.diagonal(1, dim1=2, dim2=3).mean(-1)
# ```
#
# In MiniLM it is the same head on both sentences, with a little over half of its weight. The previous-token head is
# far sharper.
#
# </details>
#
# ## If it goes wrong
#
# * **The shapes are right, the numbers are not.** Usual causes: `view(B, H, T, d)` without `transpose`, or `var` with
#   its default, which divides by D − 1. Cure: split with `view(B, T, H, d).transpose(1, 2)`, and pass `unbiased=False`.
# * **Results change from call to call.** The model is in training mode, so dropout draws anew. Cure: `model.eval()`.
#   `load_pretrained` does it for you.
# * **A sentence's vector depends on its neighbours in the batch.** `attention_mask` was not passed, or padding counted
#   in the mean. Cure: pass the mask to the encoder, and weight the mean with it.
#
# ## Takeaways
#
# * Attention is a weighted mean. The weights are a softmax of scaled dot products.
# * The mask is added before the softmax. Half of the dtype's minimum is safe, even for a row of only padding.
# * A layer is attention, add and norm, feed-forward, add and norm; the second residual starts in the middle.
# * Shapes do not prove an implementation. Compared numbers do.
# * Within a sentence, order enters through the position vectors alone.
# * A head that was picked because it looks right must be tried on a sentence it was not picked on.
#
# ## References
#
# * Vaswani et al. (2017), *Attention is all you need*, [arXiv:1706.03762](https://arxiv.org/abs/1706.03762), §3.2
# * Devlin et al. (2019), *BERT*, [arXiv:1810.04805](https://arxiv.org/abs/1810.04805), §3
# * CS224N (Stanford), default final project handout: *minBERT and downstream tasks*
# * Ba, Kiros and Hinton (2016), *Layer normalization*, [arXiv:1607.06450](https://arxiv.org/abs/1607.06450)
# * Hendrycks and Gimpel (2016), *Gaussian error linear units*, [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)
# * Clark et al. (2019), *What does BERT look at?*, [arXiv:1906.04341](https://arxiv.org/abs/1906.04341)
# * Jain and Wallace (2019), *Attention is not explanation*, [arXiv:1902.10186](https://arxiv.org/abs/1902.10186)
# * Wang et al. (2020), *MiniLM*, [arXiv:2002.10957](https://arxiv.org/abs/2002.10957)
#
# Previous: [00 Start here](00_start_here.ipynb). Next: [02 Fine-tuning](02_finetuning.ipynb).
