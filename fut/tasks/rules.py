"""How well a rule can do that sees only a part of the input: the accuracies that a model has to beat."""

import numpy as np


def rule_accuracy(seen: np.ndarray, answers: np.ndarray, test_seen: np.ndarray, test_answers: np.ndarray) -> float:
    """Accuracy on test of the best rule by train: what is seen → its most frequent answer.

    What the rule sees and the right answers are integers ≥ 0: arrays (M,) on train and (M',) on test.  Of equally
    frequent answers the smallest counts.  What train never shows gets train's most frequent answer.

    >>> seen, answers = np.array([0, 0, 0, 1, 1]), np.array([5, 5, 6, 6, 6])
    >>> rule_accuracy(seen, answers, np.array([0, 1, 1, 2]), np.array([5, 6, 5, 6]))
    0.75
    """
    base = int(answers.max()) + 1
    pairs, counts = np.unique(seen.astype(np.int64) * base + answers, return_counts=True)
    contexts, choices = np.divmod(pairs, base)
    order = np.lexsort((-choices, counts, contexts))  # the last of each context is its rule
    contexts, choices = contexts[order], choices[order]
    last = np.append(contexts[1:] != contexts[:-1], True)
    contexts, choices = contexts[last], choices[last]
    place = np.searchsorted(contexts, test_seen).clip(max=len(contexts) - 1)
    known = contexts[place] == test_seen
    guesses = np.where(known, choices[place], np.bincount(answers).argmax())
    return float(np.mean(guesses == test_answers))
