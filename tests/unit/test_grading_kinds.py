"""Kinds of answers that a reader pays and a parser refuses, with the wrong answers that look like them.

Rows are (reference answer, answer, whether it is paid). Where a table is named BOXED, the answer is what a box holds;
where it is named COMPLETIONS, it is the whole completion.
"""

import pytest

from workflow_scripts import grading

BOXED = {
    "a bare letter for a choice": [
        (r"\text{(C)}", "C", True), (r"\text{(C)}", r"\text{C}", True), (r"\text{(C)}", "c", True),
        (r"\text{(C)}", r"\mathrm{C}", True), (r"\text{(C)}", r"\text{C}\ 12", True), (r"C", r"\text{C} \quad 12", True),
        (r"\text{(C)}", r"\textbf{C}: 12", True), (r"\text{(C)}", r"\text{C} - 12", False), ("C", "C.", True),
        ("C", "c", True), ("C", "(c)", True), ("C", r"\text{c}", True), ("C", "d", False), ("C", "D", False),
        ("C", r"\text{Answer: C}", True), ("C", r"\text{The correct option is (C)}", True),
        ("C", r"\text{The correct answer is C}", True), ("C", r"\text{Option C is correct}", True),
        ("C", r"\text{Option C is wrong}", False), ("C", r"\text{C is not correct}", False),
        ("C", r"\text{C} \text{ or } \text{D}", False), ("C", "C, D", False), ("C", r"\text{C D}", False),
        ("X", "x", False), ("2X", "2x", False), ("C", r"C_1", False), ("C", r"\bar{C}", False),
        (r"\text{A, C}", "C, A", True), (r"\text{A, C}", "A", False),
    ],
    "a time of day": [
        (r"5:30 \text{ p.m.}", r"5:30\text{ PM}", True), (r"5:30 \text{ p.m.}", r"\text{5:30 PM}", True),
        (r"5:30 \text{ p.m.}", "5:30 pm", True), (r"5:30 \text{ p.m.}", r"5:30~\mathrm{P.M.}", True),
        (r"5:30 \text{ p.m.}", "17:30", True), (r"5:30 \text{ p.m.}", r"5\text{:}30\text{ p.m.}", True),
        (r"5:30 \text{ p.m.}", "5{:}30", True), (r"5:30 \text{ p.m.}", r"05:30 \text{ PM}", True),
        (r"5:30 \text{ p.m.}", r"5:30 \text{ a.m.}", False), (r"5:30 \text{ p.m.}", "5:31 PM", False),
        (r"5:30 \text{ p.m.}", "15:30", False), (r"5:30 \text{ p.m.}", "05:30", False),
        (r"17:30", r"5:30 \text{ PM}", True), (r"17:30", r"5:30 \text{ AM}", False),
        (r"12:15 \text{ a.m.}", "0:15", True), (r"12:15 \text{ p.m.}", "12:15", True),
        (r"12:15 \text{ a.m.}", r"\text{12:15 AM}", True), (r"12:15 \text{ p.m.}", r"0:15", False),
        (r"5:00 \text{ p.m.}", r"5 \text{ p.m.}", True), (r"5 \text{ p.m.}", r"\text{5 PM}", True),
        (r"5 \text{ p.m.}", "5", True), (r"5", r"5\text{ pm}", True), (r"5 \text{ p.m.}", r"5\text{ am}", False),
        ("5:30", "5:30", True), ("5:30", r"5\text{:}30", True), ("5:30", "30:5", False), ("1:6", "5:30", True),
        (r"5:30 \text{ p.m.}", "1/6", False), (r"5:30 \text{ p.m.}", r"5:30 \text{ PM or } 6:30 \text{ PM}", False),
        (r"4:00 \text{ p.m.}", r"x = 4:00 \text{ p.m.}", True), (r"5:30 \text{ p.m.}", "5.30", False),
    ],
    "a date": [
        (r"\text{July 4}", r"\text{July 4th}", True), (r"\text{July 4}", "July 4", True),
        (r"\text{July 4}", r"\text{4 July}", True), (r"\text{July 4}", r"\text{4th of July}", True),
        (r"\text{July 4}", r"\text{the 4th of July}", True), (r"\text{July 4th}", r"\text{July } 4", True),
        (r"\text{July 4}", r"\text{July }4^{\text{th}}", True), (r"\text{July 4}", r"\text{Jul. 4}", True),
        (r"\text{July 4}", r"\text{July 5th}", False), (r"\text{July 4}", r"\text{June 4}", False),
        (r"\text{July 4}", r"\text{July}", False), (r"\text{July 4}", "4", False),
        (r"\text{May 21, 2004}", r"\text{21 May 2004}", True), (r"\text{May 21, 2004}", r"\text{May 21, 2005}", False),
    ],
    "an array in square brackets": [
        ("1, 2, 3", "[1, 2, 3]", True), ("2, 3, 1", "[1,2,3]", True), (r"\{1,2,3\}", "[3, 2, 1]", True),
        ("(1,2,3)", "[1,2,3]", True), ("(1,2,3)", "[3,2,1]", False), ("1, 2, 3", "[1,2,4]", False),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", "[1,2,3]", True), (r"\begin{pmatrix}4\\5\end{pmatrix}", "[4,5]", True),
        (r"\begin{pmatrix}4\\5\end{pmatrix}", "[5,4]", False), (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1,2],[3,4]]", True),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1,3],[2,4]]", False),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[1,2,3,4]", False),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "[[1],[2]]", True),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "[[1,2]]", False),
        ("(3,-2)", "[3,-2]", True), ("3, -2", "[3,-2]", True), ("3, -2", "[-2,3]", False), ("(1,2)", "[1,2]", False),
        ("(3,-2)", "[-2,3]", False), ("[1,2]", "(1,2)", False), ("[1,2]", r"\{1,2\}", False),
        ("[1,2,3]", "(1,2,3)", True), ("[1,2,3]", "[1,2,3]", True), ("[1,2,3]", "[1,3,2]", False),
    ],
    "a sentence around a value": [
        ("72", r"\text{There are } 72 \text{ ways}", True), ("72", r"\text{There are 72 ways}", True),
        ("72", r"\text{There are $72$ ways.}", True), ("72", "There are 72 ways", True),
        ("72", r"\text{There are } 72 \text{ ways to arrange the letters.}", True),
        ("72", r"\text{There are exactly 72 such numbers}", True), ("72", r"\text{The area is } 72 \text{ cm}^2", True),
        (r"\frac12", r"\text{The probability is } \frac{1}{2}", True), ("72", r"\text{The value of } x \text{ is } 72", True),
        ("72", r"\text{Therefore, } x = 72", True), ("72", r"\text{Hence } 72", True), ("72", r"\text{Thus the total is } 72.", True),
        ("72", r"\text{Alice has } 72 \text{ apples}", True), ("72", r"\text{The sum of the digits equals } 72", True),
        ("72", r"\text{Total: } 72", True), ("72", r"72 \text{ is the answer}", True), ("72", r"\text{It takes 72 minutes}", True),
        (r"\text{(C)}", r"\text{The answer is (C)}", True), ("(1,2)", r"\text{The point is } (1,2)", True),
        ("72", r"\text{There are } 73 \text{ ways}", False), ("72", r"\text{There are at least } 72 \text{ ways}", False),
        ("72", r"\text{There are not } 72 \text{ ways}", False), ("72", r"\text{There are about } 72 \text{ ways}", False),
        ("72", r"\text{There are more than } 72 \text{ ways}", False), ("72", r"\text{Half of it is } 72", False),
        ("72", r"\text{The square of the answer is } 72", False), ("72", r"\text{There are } 72 \text{ or } 73 \text{ ways}", False),
        ("72", r"\text{There are } 72 \text{ dozen ways}", False), ("72", r"\text{If there are } 72 \text{ ways}", False),
        ("72", r"\text{The answer is not } 72", False), ("72", r"\text{Alice has } 72 \text{ and Bob has } 73", False),
        ("72", r"\text{There are } 72 \text{ ways, or maybe 73}", False), ("72", r"\text{There are two times } 72", False),
        ("72", r"\text{The answer is less than } 72", False), ("72", r"\text{Is it 72?}", False),
        ("72", r"\text{There are } 72 \text{ ways minus one}", False), ("72", r"\text{Perhaps it is } 72", False),
        ("72", r"\text{The remainder when it is divided by } 72", False), ("72", r"\text{The limit is under } 72", False),
        ("72", r"\text{I doubt it is } 72", False), ("72", r"\text{The square root is } 72", False),
        ("72", r"\text{The wrong answer is } 72", False), ("72", r"\text{The negative of it is } 72", False),
    ],
    "membership in a set": [
        ("2, 5", r"x \in \{2, 5\}", True), ("2, 5", r"x\in\left\{5,2\right\}", True), (r"\{2,5\}", r"n \in \{2,5\}", True),
        (r"x \in \{2,5\}", "2, 5", True), (r"x \in \{2,5\}", r"x = 2 \text{ or } x = 5", True), ("5", r"x \in \{5\}", True),
        ("2, 5", r"x \in \{2\} \cup \{5\}", True), ("2, 5", r"x ∈ {2, 5}", True), ("(1,2),(3,4)", r"(x,y) \in \{(1,2),(3,4)\}", True),
        ("2, 5", r"x \in \{2, 5, 7\}", False), ("2, 5", r"x \in \{2\}", False), ("5", r"x \in \{2,5\}", False),
        ("2, 5", r"x \in (2,5)", False), ("2, 5", r"x \in [2,5]", False), ("2, 5", r"x \notin \{2,5\}", False),
        (r"x \in \{2,5\}", r"y \in \{2,5\}", False), ("2, 5", r"\{x \mid x=2 \text{ or } x=5\}", True),
    ],
    "a fraction over a unit or a degree": [
        (r"\frac{360}{7}", r"\frac{360^\circ}{7}", True), (r"\frac{360}{7}^\circ", r"\frac{360^\circ}{7}", True),
        (r"\frac{12}{5}", r"\frac{12\text{ cm}}{5}", True), (r"\frac{12}{5}\text{ cm}", r"\frac{12\text{ cm}}{5}", True),
        (r"\frac{12}{5}", r"\frac{12\text{ m}}{5\text{ s}}", True), (r"\frac{12}{5}\text{ m/s}", r"\frac{12\text{ m}}{5\text{ s}}", True),
        ("5", r"\frac{5\text{ m}}{\text{s}}", True), (r"5\text{ m/s}", r"\frac{5\text{ m}}{\text{s}}", True),
        ("5", r"\frac{5}{\text{s}}", True), ("60", r"60\,\frac{\text{km}}{\text{h}}", True), ("60", r"\frac{60\,\mathrm{km}}{1\,\mathrm{h}}", True),
        (r"\frac{12}{5}\text{ cm}", r"\frac{12\text{ m}}{5}", False), (r"\frac{12}{5}", r"\frac{12\text{ cm}}{6}", False),
        ("12", r"\frac{12\text{ m}}{5\text{ s}}", False), (r"\frac{360}{7}", r"\frac{7}{360^\circ}", False),
        (r"5\text{ m/s}", r"\frac{5\text{ s}}{\text{m}}", False), (r"\frac{12}{5}", r"\frac{12\text{ dozen}}{5}", False),
        (r"\frac{1}{2}", r"\frac{1}{2}\text{ cm}", True), (r"\frac{1}{2}^\circ", r"\frac12", True), (r"\sin\frac{360^\circ}{7}", r"\sin\frac{360}{7}^\circ", True),
    ],
    "a base": [
        ("1010_2", "1010_{(2)}", True), ("1010_2", "(1010)_2", True), ("1010_2", "(1010)_{(2)}", True),
        ("1010_2", r"1010_{\text{two}}", True), ("1010_2", r"1010_{\text{base }2}", True), ("1010_2", r"1010\text{ (base 2)}", True),
        ("1010_2", r"1010 \text{ base } 2", True), ("1010_2", r"1010\text{ in base 2}", True), ("10.1_2", "10.1_{2}", True), ("10.1_2", "10.10_2", True),
        ("10.1_2", "10.1", True), ("10.1_2", "(10.1)_{(2)}", True), (r"A2_{16}", r"\text{A2}_{16}", True), (r"A2_{16}", r"\text{a2}_{16}", True),
        ("1010_2", "1010_{(3)}", False), ("1010_2", "1011_{(2)}", False), ("10.1_2", "10.11_2", False), ("10.1_2", "101_2", False),
        ("10.1_2", "2.5", False), ("1010_2", r"1010\text{ (base 3)}", False), ("1010", "1010_{(2)}", False), ("10.1", "10.1_2", False),
    ],
    "a union in words": [
        (r"(-\infty, 2] \cup (3, \infty)", r"(-\infty, 2] \text{ and } (3, \infty)", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"(-\infty, 2] \text{ or } (3, \infty)", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"(-\infty, 2], (3, \infty)", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"(3, \infty) \text{ or } (-\infty, 2]", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"x \in (-\infty, 2] \text{ or } x \in (3, \infty)", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"x \le 2 \text{ or } x > 3", True),
        (r"(-\infty, 2] \text{ and } (3, \infty)", r"(-\infty,2]\cup(3,\infty)", True),
        (r"(-\infty, 2] \cup (3, \infty)", r"(-\infty, 2) \text{ and } (3, \infty)", False),
        (r"(-\infty, 2] \cup (3, \infty)", r"(-\infty, 2]", False), (r"[0,5]", r"[0,3] \text{ and } [2,5]", False),
        (r"(1,2),(3,4)", r"(1,2)\cup(3,4)", False), (r"(1,2)\cup(3,4)", r"(1,2) \text{ and } (3,5)", False),
    ],
    "pairs with names, in any order": [
        ("(3,-2)", "y=-2, x=3", True), ("(3,-2)", r"y = -2 \text{ and } x = 3", True), ("(3,-2)", "(y,x)=(-2,3)", True),
        ("(3,-2)", "x=3, y=-2", True), ("(3,-2)", "x=-2, y=3", False), ("(3,-2)", "(x,y)=(3,-2)", True),
        ("(-2,3)", "y=-2, x=3", False), ("(3,-2)", "y=3, x=-2", False), ("(1,2,3)", "z=3, x=1, y=2", True),
        ("(1,2,3)", "z=1, x=2, y=3", False), ("x=3, y=-2", "y=-2, x=3", True), ("x=3, y=-2", "y=3, x=-2", False),
        ("(2,3)", "m=2, b=3", True), ("(3,-2)", "x=3", False), ("(-2,3)", "(y,x)=(-2,3)", False),
        ("(x,y)=(3,-2)", "y=-2, x=3", True), ("(a,b)=(1,2)", "b=2, a=1", True),
    ],
    "a segment, and signs of a conclusion": [
        ("CD", r"\overline{CD}", True), (r"\overline{CD}", "CD", True), (r"\overline{CD}", r"\overline{DC}", True),
        ("CD", r"\overline{CE}", False), (r"\overline{ab}", "ab", False), ("CD", r"\overline{C}D", False),
        ("72", r"\therefore 72", True), ("72", r"\therefore\, x = 72", True), ("72", "∴ 72", True), ("72", r"$\therefore 72$", True),
        ("72", r"\text{So } 72", True), ("72", r"\implies x = 72", True), ("72", r"⇒ 72", True), ("72", r"\therefore 73", False),
        ("72", r"x = 71 \therefore 72", False), ("72", r"\because 72", False), ("72", r"\rightarrow 72", True),
    ],
    "doubled backslashes": [
        (r"\frac12", r"\\frac{1}{2}", True), (r"\{1,2\}", r"\\{1,2\\}", True), (r"3\sqrt{2}", r"3\\sqrt{2}", True),
        (r"72", r"72\\text{ cm}", True), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\\begin{pmatrix}1\\\\2\\end{pmatrix}", True),
        (r"\begin{pmatrix}a\\b\end{pmatrix}", r"\begin{pmatrix}a\\b\end{pmatrix}", True),
        (r"\frac12", r"\\frac{1}{3}", False), ("56", r"5\\6", False), ("5", r"5\\6", False),
    ],
    "spaced digits": [
        ("1000000", "1 000 000", True), ("1000000", "1~000~000", True), ("1000000", r"1\ 000\ 000", True), ("1234567", r"1\;234\;567", True),
        ("12345.6", "12 345.6", True), ("1000000", "1 000 00", False), ("12", "1 2", False), ("1234", "12 34", False), ("1000", r"1 000 \text{ cm}", True),
        ("-12345", "-12 345", True), ("1000, 2000", "1 000, 2 000", True), ("0.123456", "0.123 456", True), ("1000000", "1 000 001", False),
        (r"\frac{7}{3}", "2 1/3", True), ("2100", "2 100/3", False),
    ],
    "a repeating decimal": [
        (r"\frac13", r"0.\dot{3}", True), (r"\frac13", r"0.\dot3", True), (r"\frac13", "0.333...", True), (r"\frac13", r"0.333\ldots", True),
        (r"\frac13", "0.333…", True), (r"\frac13", "0.(3)", True), (r"\frac13", r"0.\overline3", True), (r"\frac17", r"0.\dot{1}4285\dot{7}", True),
        (r"\frac16", r"0.1\dot{6}", True), (r"\frac16", "0.1666...", True), (r"\frac16", r"0.1\overline{6}", True), (r"\frac{8}{33}", "0.2424...", True),
        (r"\frac13", r"0.3\dot{4}", False), (r"\frac13", "0.334...", False), (r"\frac13", "0.3", False), (r"\frac12", "0.5...", False),
        (r"\frac{1}{3}", "0.3...", False), ("1, 2, 3", r"1, 2, \ldots", False), (r"\pi", r"3.14159265\ldots", True), (r"\pi", r"3.14\ldots", False),
        (r"-\frac{7}{3}", r"-2.\dot{3}", True), (r"33.\overline{3}\%", r"33.\dot{3}\%", True), (r"\frac17", r"0.\dot{1}4285\dot{8}", False),
    ],
    "lists": [
        ("2, 5", r"x=2 \text{ 或 } x=5", True), ("2, 5", "2 或 5", True), ("2, 5", "2、5", True), ("2, 5", r"2 \text{ oder } 5", True),
        ("2, 5", r"x_1 = 2,\ x_2 = 5", True), ("2, 5", r"x = 2 \text{ and } x = 5", True), ("2, 5", "2 或 6", False),
        ("2, 5", r"2 \text{ or } 5 \text{ or } 7", False), (r"\frac12", r"\frac12 \text{ or } 0.5", True), (r"\frac12", r"\frac12 \text{ or } 0.6", False),
        ("5", "2 或 5", False),
    ],
    "numbers in words": [
        ("204", r"\text{two hundred four}", True), ("12", r"\text{twelve}", True), ("12", "twelve", True), ("12", r"\text{Twelve ways}", True),
        ("105", r"\text{one hundred and five}", True), (r"\frac12", r"\text{one half}", True), (r"\frac23", r"\text{two thirds}", True),
        (r"\frac34", r"\text{three-fourths}", True), (r"\text{twelve}", "12", True), (r"\text{two}", r"\text{Two}", True), ("2, 3", r"\text{two and three}", True),
        ("12", r"\text{thirteen}", False), ("12", r"\text{twelve or thirteen}", False), ("12", r"\text{not twelve}", False), ("12", r"\text{twelve dozen}", False),
        ("2", r"\text{two to one}", False), ("12", r"\text{twelve minus one}", False), (r"\text{two men}", r"\text{two women}", False),
        (r"\text{two}", r"\text{three}", False), ("2", r"\text{two thirds}", False), ("1", r"\text{one of them}", False), ("-3", r"\text{negative three}", True),
    ],
    "names of functions": [
        ("y = 2x - 5", "f(x) = 2x - 5", True), ("f(x) = 2x - 5", "y = 2x - 5", True), ("y = 2x - 5", "f(x) = 2x + 5", False),
        ("y = 2x - 5", "x = 2y - 5", False), ("x = 2y - 5", "f(x) = 2y - 5", False), ("f(x) = 2x", "g(x) = 2x", False), ("y=2x-5", "f(t)=2x-5", False),
        ("[-1,1]", r"-1 \le f(x) \le 1", True), (r"-1 \le y \le 1", r"-1 \le f(x) \le 1", True), ("[-1,1]", r"-1 < f(x) \le 1", False),
        ("(4,\\infty)", "f(x) > 4", True), (r"[-1,1]", r"-1 \le 2f(x) \le 1", False), (r"[-1,1]", r"-1 \le \sin x \le 1", False), ("k>4", "f(x)>4", False),
    ],
    "a number on the unit circle": [
        (r"\frac{1}{2}+\frac{\sqrt3}{2}i", r"\operatorname{cis} 60^\circ", True), (r"2i", r"2\operatorname{cis}(90^\circ)", True),
        (r"\frac{1}{2}+\frac{\sqrt3}{2}i", r"\text{cis}\,\frac{\pi}{3}", True), (r"-1", r"\operatorname{cis}\pi", True),
        (r"\operatorname{cis} 60^\circ", r"e^{i\pi/3}", True), (r"\frac{1}{2}-\frac{\sqrt3}{2}i", r"\operatorname{cis} 60^\circ", False),
        (r"2i", r"\operatorname{cis} 90^\circ", False), (r"i", r"\mathrm{cis}\left(\frac{\pi}{2}\right)", True),
    ],
}  # fmt: skip

COMPLETIONS = [
    # an answer without a box
    ("42", "So, 6 * 7 = 42.\n\nAnswer: 42", True), ("42", "**Answer:** **42**", True), ("42", "**Final Answer**\n\n42", True),
    ("42", "### Final Answer\n\n$$42$$", True), ("42", "**Answer**: $42$", True), ("42", "**Final Answer: 42**", True),
    ("42", "Final answer: x = 42.", True), ("C", "Answer: C", True), ("C", "**Answer: (C)**", True), ("42", "Answer: 41", False),
    ("42", "Answer: 42 or 43", False), ("42", "Answer: not 42", False), ("42", "My answers: 42", False), ("42", "There is no answer\n42", False),
    ("42", "Answer:\n\n\\[ 42 \\]", True), ("42", "The answer is:\n\n$$42$$", True), ("42", "The final answer is **42**.", True),
    ("42", "Answer: 41\n\nAnswer: 42", True), ("42", "**Answer:** 42\n\nThis is right because 6 * 7 = 42.", True),
    ("42", "**Final Answer**\n\nThe total is 42.", True), ("42", "In our answer: 42 we used 6 * 7, which gives 42", False),
    # an answer in a tag
    ("42", "<think>6*7</think><answer>42</answer>", True), ("42", "<think>6*7</think>\n<answer>\n42\n</answer>", True),
    ("42", "<think>a</think> <answer> \\boxed{42} </answer>", True), ("42", "<think>a</think><answer>$x = 42$</answer>", True),
    ("42", "<answer>The answer is 42.</answer>", True), ("42", "<think>a</think><answer>42", True), ("42", "<answer>41</answer>", False),
    ("42", "<answer>41 or 42</answer>", False), ("42", "<think>a <answer>42</answer>", False), ("42", "<think><answer>42</answer></think> done", False),
    ("42", "<answer>41</answer> or <answer>42</answer>", False), ("42", "\\boxed{41} <answer>42</answer>", True), ("42", "<answer></answer>", False),
    ("42", "<answer>42</answer> I hope it is right.", True), ("42", "<answer>41</answer><answer>42</answer>", False), ("42", "<answer>There are 42 ways</answer>", True),
    # two answers at once
    ("42", "\\boxed{41} or \\boxed{42}", False), ("41", "\\boxed{41} or \\boxed{42}", False), ("42", "$\\boxed{41}$ or $\\boxed{42}$", False),
    ("42", "either \\(\\boxed{41}\\) or \\(\\boxed{42}\\).", False), ("42", "\\boxed{41} or maybe \\boxed{42}", False), ("42", "\\boxed{41}, \\boxed{42}", False),
    ("42", "\\boxed{41}\\boxed{42}", False), ("42", "\\boxed{41}\n\n\\boxed{42}", False), ("42", "\\boxed{41} \\text{ or } \\boxed{42}", False),
    ("42", "\\boxed{41}. Alternatively, \\boxed{42}", False), ("42", "\\boxed{41}, or it could be \\boxed{42}", False), ("42", "\\boxed{41} and/or \\boxed{42}", False),
    ("42", "\\boxed{40}, \\boxed{41} or \\boxed{42}", False), ("42", "\\boxed{42} or 43", False), ("42", "\\boxed{\\boxed{41} or \\boxed{42}}", False),
    ("42", "\\boxed{41 or \\boxed{42}}", False), ("42", "The answer is 41 or the answer is 42.", False), ("42", "#### 41 or #### 42", False),
    ("42", "Answer: 41 or Answer: 42", False), ("42", "\\boxed{41} / \\boxed{42}", False), ("42", "\\boxed{41} 或 \\boxed{42}", False),
    ("2, 5", "The solutions are $\\boxed{2}, \\boxed{5}$", True), ("2, 5", "\\boxed{5} and \\boxed{2}", True), ("2, 5", "\\boxed{2} or \\boxed{6}", False),
    ("(2,5)", "$x = \\boxed{2}$ and $y = \\boxed{5}$", True), ("5", "$x = \\boxed{2}$ and $y = \\boxed{5}$", False), ("\\frac12", "\\boxed{\\frac12} or \\boxed{0.5}", True),
    ("42", "First \\boxed{41}. No, that is wrong: \\boxed{42}", True), ("42", "\\boxed{41}, or rather \\boxed{42}", True), ("42", "\\boxed{42}. So the answer is \\boxed{42}.", True),
    ("42", "\\boxed{42} \\boxed{42}", True), ("42", "The area is \\boxed{41} and then the total is \\boxed{42}", True), ("42", "The answer is 41. Wait, the answer is 42.", True),
    ("\\frac12", "\\boxed{\\frac12} or 0.5", True), ("42", "So it is \\boxed{42} or, in words, forty-two.", True), ("72", "\\\\boxed{72}", True),
    ("\\frac12", "\\\\(\\\\boxed{\\\\frac{1}{2}}\\\\)", True),
]  # fmt: skip

EXACT_BOXED = [
    ("18", "x = 18", True), ("18", r"\textbf{18}", True), ("18", r"\mathbf{18}", True), ("18", r"\boldsymbol{18}", True), ("18", "{18}", True),
    ("18", r"18\text{ cm}^2", True), ("18", r"18\,\mathrm{cm}^{2}", True), ("18", r"18^\circ", True), ("18", r"18^{\circ}\text{C}", True),
    ("18", r"\text{18 dollars}", True), ("18", r"\text{Total} = 18", True), ("18", r"\text{Total: } 18", True), ("18", r"x = \$18.00", True),
    ("18", r"\textcolor{blue}{18}", True), ("18", r"\displaystyle 18", True), ("18", r"\(18\)", True), ("18", r"$18$", True), ("18", r"\dfrac{36}{2}", True),
    ("18", r"\frac{36}{2}\text{ cm}", True), ("18", r"\frac{36}2", True), ("0.5", r"\frac12", True), ("1000", "1 000", True), ("1000", "1{,}000", True),
    ("18", r"18~\text{km/h}", True), ("18", r"\underline{18}", True), ("18", r"\large 18", True), ("18", r"\text{There are 18 apples}", True), ("18", r"N = 18 \text{ eggs}", True),
    ("18", r"\boxed{18}", True), ("18", r"\therefore 18", True), ("18", r"\text{eighteen}", True), ("18", r"x=18.", True), ("18", r"18\%", True), ("18", "x = -18", False),
    ("18", "x = 19", False), ("18", "2x = 18", False), ("18", "x = 18, y = 19", False), ("18", r"\textbf{18} or \textbf{19}", False), ("18", r"18^2", False),
    ("18", r"-18", False), ("18", r"\sqrt{18}", False), ("18", r"x > 18", False), ("18", r"x \ne 18", False), ("18", r"18 = 19", False), ("18", r"\textbf{1}\textbf{8}", False),
    ("18", r"\text{half of } 18", False), ("18", r"\text{not } 18", False), ("18", r"18\text{ dozen}", False), ("18", r"18x", False), ("18", r"18!", False),
    ("18", r"18\pi", False), ("18", r"\frac{18}{2}", False), ("18", "{18}{2}", False), ("18", "x = y = 18", False), ("18", "x^2 = 18", False), ("18", r"\pm 18", False),
]  # fmt: skip

EXACT_COMPLETIONS = [
    ("18", "<think>\\boxed{19}</think>\\boxed{x = 18}", True), ("18", "<think>a</think><answer>18</answer>", True), ("18", "**Answer:** **18**", True),
    ("18", "Answer: 18", True), ("18", "**Final Answer**\n\n18", True), ("18", "<answer>18 dollars</answer>", True), ("18", "<answer>19</answer>", False),
    ("18", "\\boxed{17} or \\boxed{18}", False), ("18", "\\boxed{18}, \\boxed{18}", True), ("18", "#### 17 or #### 18", False), ("18", "#### 17\n#### 18", True),
    ("18", "<think>\\boxed{18}", False), ("18", "<think>#### 18", False), ("18", "Answer: 17 or 18", False), ("18", "\\\\boxed{18}", True), ("18", "#### \\boxed{x = 18}", True),
    ("18", "The answer is x = 18.", True), ("18", "The answer is 17 or the answer is 18.", False),
]  # fmt: skip


def faults(grader: str, rows: list[tuple[str, str, bool]]) -> list[str]:
    """The rows whose verdict is another than the table's."""
    verdicts = grading.grade_many(grader, [(completion, reference, False) for reference, completion, _ in rows])
    return [
        f"{completion!r} for {reference!r} is {verdict.status}"
        for (reference, completion, paid), verdict in zip(rows, verdicts, strict=True)
        if (verdict.status == "correct") != paid
    ]


def boxed(rows: list[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    return [(reference, f"Thus \\boxed{{{answer}}}.", paid) for reference, answer, paid in rows]


@pytest.mark.parametrize("kind", BOXED)
def test_math_answer_pays_what_a_reader_pays(kind: str) -> None:
    assert not faults("math_answer", boxed(BOXED[kind]))


def test_math_answer_finds_the_one_answer_of_a_completion() -> None:
    assert not faults("math_answer", COMPLETIONS)


def test_exact_answer_reads_what_a_box_holds_around_one_number() -> None:
    assert not faults("exact_answer", boxed(EXACT_BOXED))


def test_exact_answer_finds_the_one_answer_of_a_completion() -> None:
    assert not faults("exact_answer", EXACT_COMPLETIONS)
