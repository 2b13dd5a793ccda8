"""Prices of options by QuantLib: the parent has the market in memory, and each clone prices a share.

Usage: prices.py CLONES. Prints the sum of all prices, after a comparison with the prices that the parent computes alone.
"""

import sys

import QuantLib as ql
from stdchk import fork

STRIKES = [60 + 0.5 * n for n in range(160)]
STEPS = 300


class Market:
    """A stock, its volatility, and an interest rate."""

    def __init__(self):
        self.today = ql.Date(15, 5, 2024)
        ql.Settings.instance().evaluationDate = self.today
        days = ql.Actual365Fixed()
        self.process = ql.BlackScholesProcess(
            ql.QuoteHandle(ql.SimpleQuote(100.0)),
            ql.YieldTermStructureHandle(ql.FlatForward(self.today, 0.03, days)),
            ql.BlackVolTermStructureHandle(ql.BlackConstantVol(self.today, ql.NullCalendar(), 0.2, days)),
        )

    def price(self, strike):
        """Returns the price of an American put option of one year, by a binomial tree."""
        until = self.today + ql.Period(1, ql.Years)
        option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, strike), ql.AmericanExercise(self.today, until))
        option.setPricingEngine(ql.BinomialVanillaEngine(self.process, "crr", STEPS))
        return option.NPV()


def main():
    wanted = int(sys.argv[1])
    market = Market()
    ticket = fork.request_ticket(wanted)
    me = fork.clone(ticket)
    if me > 0:
        fork.exit([market.price(strike) for strike in STRIKES[me - 1 :: ticket.count]])
    found = [0.0] * len(STRIKES)
    for number, share in fork.join(ticket).items():
        found[number - 1 :: ticket.count] = share
    if found != [market.price(strike) for strike in STRIKES]:
        sys.exit("the clones' prices differ from the parent's")
    print(f"{ticket.count} clones, {len(STRIKES)} prices, equal to the parent's, sum {sum(found):.6f}")


main()
