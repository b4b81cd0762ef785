"""Formula and source, in plain words, of the rules whose class says them elsewhere: the paper's, the controls, ours."""

PAPER = "Akbay and Tepedelenlioğlu, Distributed Stochastic Gradient Descent with Cost-Sensitive and Strategic Agents"
AGREEMENT = """Pay each agent by how close its gradient lies to the mean of the others'.

    R_k = h(ν) + h'(ν)·ν²/V_k·( E_k − D_k )
    D_k = ‖X_k − mean of the others‖²,   E_k = W_k/ν·n/(n−1), what D_k is with honest work

V_k and W_k stand for the variance σ² of the gradient of one sample. """
STEADY = """Pay the price of balanced agreement, and release it as far as reports tell something new.

    earned:    Σ R, the price of balanced agreement; in all no more than the cost, Σ h(ν)
    told:      ρ = mean of ⟨X_k − p, w_k⟩, divided by the median of the same of the others
    released:  min(Σ R, Σ h)·min(ρ, 1)^2.5

w_k is the mean of the others' X − p, and p the public prediction. Honest work has ρ = 1. The prediction, zeros and
anything else that is public have about 0. Early in a run ρ is taken to be up to three standard errors smaller, so money
comes late. Nothing is ever taken back."""
LOOKED = """Pay for what an agent says it did, S of the samples asked for, and hold it until a look.

    held:      F = Σ f,   f = (1 + m)·h(S) for each round
    candidate: round t replaces the one so far with chance f_t/F_t, by a coin that is drawn after all reports
    released:  F at the end of the period, if the candidate's report is the work on the first S of its named rows

Whatever an agent does, and knows, and whenever it leaves: cheating in a round is worth what declining it is worth. The
proof is on the page “Verified work” of the documentation. Here a coin is made of the reports alone, for nobody tries
reports until a coin is good. """

SOURCES = {
    "flat": """Pay everybody who sends anything usable what the work would cost: R_k = h(ν).

Source: none. It is the control.""",
    "known": f"""{AGREEMENT}Here both are σ², which the server knows.

Source: {PAPER}, equation 6. With known variance ν samples are everybody's best answer, and honest pay equals honest
cost (its Theorem 1), as long as agents send what they computed.""",
    "estimated": f"""{AGREEMENT}Here both are estimated from the others' reports of the round.

Source: {PAPER}. The estimate makes honest pay a little less than the cost, since the mean of 1/σ̂² is more than 1/σ².
Where all reports are nearly the same, σ̂² is nearly 0, and pay can be any number.""",
    "agreement": f"""Pay each agent by how close its gradient lies to the others', pair by pair.

    R_k = h(ν) + h'(ν)·ν²/V·( E_k − D_k )
    D_k = mean of g_ki over the others i,   E_k = mean of g_ij over the pairs without k

g_ki is the squared distance of two reports, cut at 100 times that of honest work, and V the variance σ² of the gradient
of one sample as earlier rounds have it. The first rounds pay h(ν); their extras follow when V is known.

Source: ours, after {PAPER}. The extras of a round add up to 0, whatever is sent. Agents that are alike earn their cost
for any distribution of the gradients. As long as no distance is cut, ν samples are the best answer if σ²/V is within
1/ν of 1. The proof is on the page “Agreement” of the documentation.""",
    "balanced": f"""{AGREEMENT}Here W_k is estimated from the others' reports of the round, and V_k
from all of them: the same number for everybody.

Source: ours, after {PAPER}. At cooperation the E_k − D_k add up to 0, so honest pay equals honest cost for any
distribution of the gradients. But V_k contains the agent's own report. Where few samples carry most of the variance,
fewer samples than were asked for pay more: on a survey with 8.6 % of positives one sample gains 7.6 of 9 among four
members. So nobody is paid by it; it is here for comparison.""",
    "genie": f"""Pay each agent by its distance to the true gradient m.

    R_k = h(ν) + h'(ν)·ν²/σ²·( σ²/ν − ‖X_k − m‖² )

Source: {PAPER}, equation 8. No server knows m and σ². It is the ceiling of all rules that pay by distance.""",
    "calibrated": """Pay the cost flat while each agent's own noise is learned, then by agreement relative to that.

    R_k = h(ν) + h'(ν)·ν²/V_k·( E_k − D_k ),   D_k = ‖X_k − mean of the others‖²

E_k is the distance expected of honest work with the noise of agent k, and V_k sets the slope to h'(ν) at ν samples. In
this game the calibration takes the first quarter of the rounds.

Source: ours, for agents whose data are not equally noisy.""",
    "witnessed": f"""Pay each agent by its distance to the gradient m_w of W samples of the server's own.

    R_k = h(ν) + h'(ν)·ν²/V·( σ̂²/ν + σ̂²/W − ‖X_k − m_w‖² )

σ̂² is measured on the server's samples of the round, too, and V is σ² as earlier rounds have it.

Source: ours. It is the rule of {PAPER} with known variance, and a witness in the place of the others.""",
    "information": """Pay each agent for what its report adds to the public prediction p.

    v_k = X_k − p,   w_k = mean of the others' v
    I_k = 2a·⟨v_k, w_k⟩ − a²·‖v_k‖²
    R_k = h(ν) + h'(ν)·ν²/(a²σ²)·( I_k − the same among the others )

a is the share of signal in a report, as earlier rounds show it. A report made from public knowledge alone scores 0 at
most. An agent under suspicion is still scored, but is no longer used to score others. Nor is a newcomer, before its
reports were cleared.

Source: ours.""",
    "steady": f"{STEADY}\n\nSource: ours.",
    "one-look": f"{LOOKED}One candidate in 50 rounds, m = 0.\n\nSource: ours.",
    "two-looks": f"{LOOKED}Two candidates in 50 rounds, m = 0. If one fails, all is lost.\n\nSource: ours.",
    "two-looks-plus": f"{LOOKED}Two candidates in 50 rounds, m = 5 %. If one fails, all is lost.\n\nSource: ours.",
    "steady-plus": f"{STEADY} All of it is for a cost that is a tenth above what work costs.\n\nSource: ours.",
}
