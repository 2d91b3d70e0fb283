"""Every reason for a number that is not finite, in sentences: what happened, and what to do.

Pure: text only.
"""

from __future__ import annotations

from dataclasses import dataclass

EXPONENTIALS = ("exp", "exp2", "expm1", "sinh", "cosh", "softplus", "logaddexp")


@dataclass(frozen=True)
class Words:
    """A reason in sentences."""

    explanation: str
    remedy: str
    operations: tuple[str, ...] = ()
    """Operations that have this reason, for keeping them safe by the name of the reason."""


WORDS: dict[str, Words] = {
    "log_of_zero": Words(
        "The logarithm of 0 is -inf, and its gradient 1/0 is infinite.",
        "Keep the argument away from 0, for example x.clamp(min=1e-8).log(), or compute in log "
        "space (log_softmax, logsigmoid).",
        ("log", "log2", "log10", "log1p", "xlogy"),
    ),
    "log_of_negative": Words(
        "The logarithm of a negative number is NaN.",
        "Clamp the argument to a small positive number before the logarithm.",
        ("log", "log2", "log10", "log1p"),
    ),
    "sqrt_at_zero": Words(
        "The square root has an infinite slope at 0; times an inner gradient of 0 that is NaN.",
        "Add a small epsilon under the root: (x + 1e-12).sqrt().",
        ("sqrt",),
    ),
    "sqrt_of_negative": Words(
        "The square root of a negative number is NaN.",
        "Clamp the argument to 0 or more; rounding can make a difference of squares negative.",
        ("sqrt", "rsqrt"),
    ),
    "masked_row": Words(
        "A row in which every entry is masked with -inf has no softmax: it becomes NaN.",
        "Leave at least one entry of every row visible, or drop samples without any.",
        ("softmax", "log_softmax", "logsumexp"),
    ),
    "label_masked": Words(
        "The label of a sample points at a class whose probability is exactly 0.",
        "Do not mask the class that is the label, or check the labels.",
        ("cross_entropy", "nll_loss"),
    ),
    "zero_times_inf": Words(
        "0 times infinity is NaN.",
        "Test for a finite value first and leave the term, or the whole update, out when it is "
        "not.",
        ("mul", "matmul"),
    ),
    "inf_minus_inf": Words(
        "Infinity minus infinity is NaN.",
        "Find where the infinity comes from, and use a large finite number for masks.",
        ("sub", "add", "sum"),
    ),
    "inf_over_inf": Words(
        "Infinity divided by infinity is NaN.",
        "Bound numerator and denominator, or work with logarithms of them.",
        ("div",),
    ),
    "division_by_zero": Words(
        "A number was divided by 0.",
        "Keep the denominator away from 0: divide by x.clamp(min=eps), or skip an empty batch.",
        ("div", "reciprocal", "rsqrt"),
    ),
    "zero_over_zero": Words(
        "0 was divided by 0, as in a mean over nothing or in x / x.norm() at 0.",
        "Keep the denominator away from 0: divide by count.clamp(min=1) or by norm + eps.",
        ("div", "reciprocal"),
    ),
    "zero_variance": Words(
        "All values to be normalised are equal, so their variance is 0 and 1/sqrt(0) is infinite.",
        "Give the normalisation an eps > 0 that does not vanish in its precision.",
        ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"),
    ),
    "where_branch": Words(
        "The value was kept out of the loss (torch.where, a mask, a clamp), but the gradient still "
        "goes through the branch that was not taken, where 0 times infinity is NaN.",
        "Make the argument safe before the operation (a where inside the where), not its result "
        "after it.",
    ),
    "norm_at_zero": Words(
        "A norm or distance of 0 has no gradient.",
        "Add a small epsilon: (x.square().sum() + 1e-12).sqrt().",
        ("norm", "cdist", "pairwise_distance", "hypot"),
    ),
    "acos_at_one": Words(
        "acos and asin are defined between -1 and 1, and their slope is infinite at both ends.",
        "Clamp the argument to [-1 + 1e-6, 1 - 1e-6], or use atan2.",
        ("acos", "asin", "acosh"),
    ),
    "logit_at_edge": Words(
        "The function is infinite at the edge of its domain and undefined beyond.",
        "Clamp the argument strictly inside the domain (logit has an eps argument for that).",
        ("logit", "atanh", "erfinv"),
    ),
    "atan2_at_origin": Words(
        "atan2(0, 0) has no gradient.",
        "Keep the point away from the origin by a small epsilon.",
        ("atan2",),
    ),
    "pow": Words(
        "The power is not defined there: 0 to a negative power (also in the slope of a power below "
        "1), a negative base with a fractional power, or a result too large.",
        "Clamp the base to a small positive number, or the exponent.",
        ("pow",),
    ),
    "prod": Words(
        "The gradient of a product divides by its factors, one of which is 0, or the product is "
        "too large.",
        "Sum logarithms instead of multiplying, or keep the factors away from 0.",
        ("prod", "cumprod"),
    ),
    "gamma_at_pole": Words(
        "The gamma function and its relatives are infinite at 0 and at negative integers.",
        "Keep the argument positive, for example softplus(x) + 1e-6.",
        ("lgamma", "digamma", "polygamma"),
    ),
    "singular_matrix": Words(
        "The matrix has no inverse.",
        "Add a small multiple of the identity, or use lstsq.",
        ("linalg_inv", "linalg_inv_ex"),
    ),
    "equal_eigenvalues": Words(
        "The gradient of eigenvectors divides by the differences of eigenvalues, two of which are "
        "equal.",
        "Use only the eigenvalues in the loss, or separate them by a small perturbation.",
        ("linalg_eigh", "linalg_svd"),
    ),
    "empty_mean": Words(
        "The mean of no elements is 0/0: nothing was selected, or every label is ignored.",
        "Skip the term when nothing is left, or divide the sum by count.clamp(min=1).",
        ("mean", "cross_entropy", "nll_loss"),
    ),
    "std_of_one": Words(
        "The deviation of a single value is 0/0 (it divides by n - 1).",
        "Use correction=0, or leave the normalisation out when there is one sample; drop_last "
        "avoids a last batch of one.",
        ("std", "var"),
    ),
    "std_at_zero": Words(
        "The deviation of equal values is 0, where it has no gradient.",
        "Use (x.var() + 1e-8).sqrt() instead of x.std().",
        ("std", "var"),
    ),
    "exp_overflow": Words(
        "The exponential is too large for its data type (beyond exp(88) in float32, exp(11) in "
        "float16).",
        "Bound the argument (clamp, or subtract the maximum), or stay in log space.",
        EXPONENTIALS,
    ),
    "loss_infinite": Words(
        "A target sequence is longer than its input allows, so no alignment exists: the CTC loss "
        "is infinite and its gradient NaN.",
        "Drop such samples, or set zero_infinity=True.",
        ("ctc_loss",),
    ),
    "fp16_overflow": Words(
        "A result is larger than 65504, the largest float16 number.",
        "Compute this part in float32 or bfloat16, scale the values down, and leave updates with "
        "infinite gradients out (loss scaling does).",
    ),
    "overflow": Words(
        "Finite but very large numbers left the range of their data type. The operation is not at "
        "fault: values had grown before.",
        "Look for what made the values grow: learning rate, missing clipping, an outlier, an "
        "unbounded product.",
    ),
    "update_division": Words(
        "The update divides by 0: the optimizer's denominator vanished, eps included (1e-8 is 0 in "
        "float16).",
        "Use a larger eps (1e-4 in float16), or keep weights and optimizer state in float32.",
        ("addcdiv", "div", "adam", "adamw"),
    ),
    "scaler": Words(
        "The loss scale is out of range: the scaled loss overflows, or the scale itself fell to 0.",
        "Start from a smaller scale; a scale that keeps falling means that gradients are never "
        "finite.",
    ),
    "nonfinite_input": Words(
        "The batch already contains a value that is not finite.",
        "Repair or drop the sample; check the loading and normalisation of the data.",
    ),
    "nonfinite_parameter": Words(
        "A parameter or buffer already held a value that is not finite before it was used.",
        "Initialise it; memory from torch.empty holds whatever was there.",
    ),
    "nonfinite_state": Words(
        "The optimizer's state already held a value that is not finite.",
        "Restore the state from an earlier checkpoint, or start the optimizer afresh.",
    ),
    "uninitialised_memory": Words(
        "Memory from torch.empty was read before anything had been written to it.",
        "Use torch.zeros, or write every element first.",
    ),
    "written_value": Words(
        "The code writes this value itself (masked_fill, full, where), and it reached the loss.",
        "Keep the marked entries out of the loss, or use a large finite number.",
    ),
    "nonfinite_constant": Words(
        "A value that is not finite came from outside the watched steps.",
        "Check the tensors that were made before the training or taken from elsewhere.",
    ),
    "nonfinite_number": Words(
        "A Python number that is not finite entered the computation.",
        "Check the number (a learning rate, a weight, a value read back with item()).",
    ),
    "invalid_operation": Words(
        "The operation made NaN from finite inputs.",
        "Look at the inputs: they lie outside of what the operation is defined for.",
    ),
}
