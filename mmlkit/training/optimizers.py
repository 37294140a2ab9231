"""Optimizers and learning rate schedules.

Notebook 02 builds `AdamW` by hand and shows where it differs from torch's.
"""

import math

import torch

__all__ = ["AdamW", "Adamax", "SCHEDULES", "learning_rate", "make_optimizer"]

# From the share of the steps after the warmup that are left, to the share of the peak.
SCHEDULES = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
    "constant": lambda left: 1.0,
}


class AdamW(torch.optim.Optimizer):
    """AdamW of the CS224N minBERT handout, in Kingma and Ba's efficient form (2015, section 2).

    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  alpha_t = lr sqrt(1-b2^t) / (1-b1^t)
    theta = theta - alpha_t m / (sqrt(v) + eps);  theta = theta - lr weight_decay theta

    There are two differences from torch.optim.AdamW. eps is added to the *uncorrected* sqrt(v), so
    it weighs more in early steps, by 1/sqrt(1-b2^t). Decay acts after the step, on the updated
    theta, where torch decays first.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        betas: (b1, b2), decay rates of the averages.
        eps: see above.
        weight_decay: decoupled decay.
        correct_bias: False takes alpha_t = lr.
    """

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True
    ):
        super().__init__(
            params,
            dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, correct_bias=correct_bias),
        )

    @torch.no_grad()
    def step(self, closure=None):
        """Update every parameter that has a gradient; all others stay bit-identical."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None:
                    self._update(theta, theta.grad, group, self.state[theta])
        return loss

    @staticmethod
    def _update(theta, g, group, state):
        b1, b2 = group["betas"]
        if not state:
            state.update(
                step=0, exp_avg=torch.zeros_like(theta), exp_avg_sq=torch.zeros_like(theta)
            )
        state["step"] += 1
        t, m, v = state["step"], state["exp_avg"], state["exp_avg_sq"]
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        alpha = group["lr"]
        if group["correct_bias"]:
            alpha *= math.sqrt(1 - b2**t) / (1 - b1**t)
        theta.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-alpha)
        theta.sub_(theta, alpha=group["lr"] * group["weight_decay"])


class Adamax(torch.optim.Adamax):
    """Adamax (Kingma and Ba 2015, section 7.1) with decoupled weight decay, as in MT-DNN.

    theta = theta - lr weight_decay theta, then Adamax's step without decay. The arguments are those
    of torch.optim.Adamax, which adds weight_decay * theta to the gradient instead (L2). Its step is
    about lr for a gradient of any size, so a row that no batch touches would shrink by lr at every
    step.
    """

    @torch.no_grad()
    def step(self, closure=None):
        """Update every parameter that has a gradient; all others stay bit-identical."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        decays = [group["weight_decay"] for group in self.param_groups]
        try:
            for group, decay in zip(self.param_groups, decays):
                group["weight_decay"] = 0.0
                for theta in group["params"]:
                    if theta.grad is not None and decay:
                        theta.mul_(1 - group["lr"] * decay)
            super().step()
        finally:
            for group, decay in zip(self.param_groups, decays):
                group["weight_decay"] = decay
        return loss


def make_optimizer(model, name="adamw", *, lr, head_lr=None, pal_lr=None, weight_decay=0.01):
    """Make an optimizer over the trainable parameters of a MultitaskModel.

    Each parameter group has its learning rate a second time, as "peak", for a schedule of your own.
    `fit` sets "peak" anew, to the learning rate that the group has when `fit` begins.

    Args:
        model: a MultitaskModel.
        name: "adamw" (torch's, fused), "adamax" (MT-DNN's, with decoupled decay) or "handout"
            (`AdamW` of this module).
        lr: learning rate of the encoder.
        head_lr: learning rate of everything outside the encoder; lr by default. A dict
            {task: rate} has one for the head of each task that it names, and lr for the rest.
        pal_lr: learning rate of the modules that `add_pals` put into the encoder; lr by default.
        weight_decay: decoupled decay of matrices. Biases and LayerNorms have none.

    Returns:
        A torch optimizer, which `fit` accepts as `optimizer`.

    Raises:
        ValueError: the name or a task of head_lr is unknown, or (from torch) no parameter is
            trainable.
    """
    makers = {
        "adamw": lambda groups: torch.optim.AdamW(groups, eps=1e-8, fused=True),
        "adamax": lambda groups: Adamax(groups, foreach=True),
        "handout": AdamW,
    }
    if name not in makers:
        raise ValueError(f"optimizer {name!r} is not one of {list(makers)}.")
    if isinstance(head_lr, dict) and (unknown := sorted(set(head_lr) - set(model.heads))):
        raise ValueError(f"head_lr names {unknown}, but the model has heads for {[*model.heads]}.")
    head_lr, pal_lr = lr if head_lr is None else head_lr, lr if pal_lr is None else pal_lr
    groups = {}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            peak = lr if key.startswith("encoder.") else head_lr
            if isinstance(peak, dict):  # the name is heads.TASK.weight, or longer
                peak = peak.get(key.split(".")[1], lr)
            if key.startswith("encoder.") and ".pals." in key:
                peak = pal_lr
            # The biases of multiverse heads are a matrix, hence the test of the name.
            plain = parameter.dim() < 2 or key.endswith("bias")
            groups.setdefault((peak, 0.0 if plain else weight_decay), []).append(parameter)
    return makers[name](
        [
            {"params": params, "lr": peak, "peak": peak, "weight_decay": decay}
            for (peak, decay), params in groups.items()
        ]
    )


def learning_rate(step, *, peak, warmup, total, schedule="linear"):
    """Compute the learning rate of a step: a linear rise over the warmup, then the schedule.

    Args:
        step: counted from 0.
        peak: the highest learning rate.
        warmup: the number of steps of the rise.
        total: the number of all steps.
        schedule: after the warmup: "linear" down to 0 at `total`, "cosine" (half a period, down to
            0 at `total`), or "constant".

    Returns:
        The learning rate.

    Raises:
        KeyError: the schedule is unknown.

    Example::

        learning_rate(60, peak=1.0, warmup=20, total=100)                        # 0.5
        learning_rate(60, peak=1.0, warmup=20, total=100, schedule="cosine")     # 0.5
    """
    shape = SCHEDULES[schedule]
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * shape(max(total - step, 0) / max(total - warmup, 1))
