"""What the documents claim, as Python: a claim is a function of a card's evidence that yields its tests.

Nothing in these modules is a verdict: judge.py gives one by rule.py. Questions (causes, contradictions) and what stands
beside printed numbers have the same form.

Thresholds. A number is reproduced within 10 %; 1.03 and 0.97 are the tie. Of a cause, doing without it closes at least
half (0.5) of the gap. 1.1 is a difference that can be seen; 60 % of a ceiling, bound by it; half of what is asked for
served by L1, a cache that is used well. Kinds, headlines and thresholds were set on 2026-11-23 (6e0932a), with the
runs of 21 to 23 November known and before the runs of the corrected kernels, which decide; a later change is listed
here with its reason.

Changes before the runs of the corrected kernels: A-09, C-02 and C-27 take the busiest of DRAM, L2 and L1, not of the
first two, since "bound by memory" does not say which. An audit that recomputed claims without their verdicts found
words that the documents do not say: A-06 is about the fixed kernel, A-18 about V as well as K, A-22 about a PyTorch
that is as fast, B-22 says "can" and "often", B-24 "might", C-23 "48 KB"; and E-17 asked what a sum comes to that no
call pays. Their headlines follow the words now.

Changes with the values of a deciding run known, each for a reason that is none of the value:
  C-19, 52 minutes after the run of 24 November began: it had asked what is left of V7's gain with its query back in
    global memory, which says nothing of the launch; it asks what both launches cost.
  E-04 (07a2ea3): "removes that problem" is not the document's; it says that the accumulators move to shared memory.
  E-15 (2de0a14, 24 November): a support test of vector loads is asked in the study of its headline.
  E-16 (b2c2b0a, 25 November): the claim names Phase 4's 1,028 us, which its test had divided by all along.
  E-05 (c87e291, 23 November, taken back on 27 November): a warp a row had become the headline in the place of padded
    rows. It removes 79 % of the bank conflicts as well as the idle threads, so it cannot tell them apart; padded rows
    can. "Holds" is "in part" again.

Changes of 27 November, after a second blind audit of the verdicts, all values known; the claim's own words decide:
  A-17  "tensor cores" and "tricks of computing" are two parts; one place of four had decided for both.
  A-22  asked PyTorch's math backend, which is slower as timed; that the kernel is near optimal is asked of a kernel
        whose threads all work.
  B-07  "fusion works" is cited too: a part compares equal loads. "Same direction" is "in part".
  B-10  "32 times" is a count, and wrong at the head dims that it is printed for. "Supported" is "in part".
  B-13  "11 to 45 % slower" is a size: a part asks it, by the document's times at each head dim, and no condition has
        it. The former test called 5 % reproduced, being within a tenth of the lower end of the range.
  B-16  both registers and blocks are as claimed in our build for the authors' card; only that this makes separate
        kernels faster is refuted here. "Refuted" is "in part".
  C-10  "only" for head dim 2048: V4 may not be faster at 128 and 512. Two places of three had hidden that it is, at
        512, as timed and on the device. "Same direction" is "depends on the load".
  C-21  an exact count shows that nothing is saved; it is the headline. "Not supported" is "refuted".
  C-24  its second half is the effect of a reason that an exact count refutes; at matched load it is a step of waves
        besides (6 blocks of sinusoidal V1 to an SM, 5 of V2). "In part" is "refuted".
  E-10  the document's number is of its own input, uniform; a check now shows the largest error of both.
  E-16  "200-400 us (proven)" is a size, missed tenfold. "Same direction" is "refuted".
  C-22  as timed its interval is too wide to tell reproduced from the same direction, which demotes a claim no more
        (rule.py); C-06 and B-09 as timed are of short calls, whose intervals are wider by a pool of their own.

Thresholds that no document states and that a value comes near: 60 % of peak in A-09, C-27 and C-02. At matched load the
corrected online kernel is at 59.14 % at head dim 2048; A-09 is refuted there by 55.35 % at 512 as well.
"""
