"""Reference networks as the chains of the fused kernels."""

from neuralpath.kernels.limit.fused_chains import ConvolutionStep, DenseStep, LimitChain, PoolStep
from reference import cases


def _grouped(layers):
    """Each layer with the slope of the activation after it, None without; None if the network is no chain of ReLUs."""
    grouped = []
    for layer in layers:
        if isinstance(layer, cases.Activation):
            if layer.kind not in ("relu", "leaky"):
                return None
            grouped[-1][1] = layer.slope
        elif isinstance(layer, cases.Skip):
            return None
        else:
            grouped.append([layer, None])
    return grouped


def dense_steps(layers):
    grouped = _grouped(layers)
    if grouped is None or not all(isinstance(layer, cases.Dense) for layer, _ in grouped):
        return None
    return [DenseStep(layer.gain, layer.bias, slope) for layer, slope in grouped]


def image_chain(layers):
    grouped = _grouped(layers)
    if grouped is None or isinstance(layers[0], cases.Dense):
        return None
    steps, dense, pooled = [], [], False
    for layer, slope in grouped:
        match layer:
            case cases.Conv():
                geometry = {"stride": (layer.stride,) * 2, "before": (layer.before,) * 2, "after": (layer.after,) * 2}
                variances = {"weight_variance": layer.gain, "bias_variance": layer.bias}
                window = (layer.window, layer.window)
                steps.append(ConvolutionStep(window, **variances, **geometry, circular=layer.circular, slope=slope))
            case cases.AveragePool():
                steps.append(PoolStep((layer.window,) * 2, (layer.stride,) * 2))
            case cases.GlobalAverage():
                pooled = True
            case cases.Dense():
                dense.append(DenseStep(layer.gain, layer.bias, slope))
    return LimitChain(tuple(steps), pooled, tuple(dense))
