"""The five axes of an RLVR objective as pure functions of tensors.

Shapes, used everywhere: B rollouts, T completion tokens; ratio (B,T) or (B,1); advantage (B,1); bounds broadcast to the
ratio; mask (B,T). A prompt has `group_size` rollouts, `group_correct` of them correct.
"""
