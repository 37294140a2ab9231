"""Assignments that grade themselves: questions, the sandbox, reports and the leaderboard.

    names         the syntax tree of an answer, and the names in it
    program       what is run of a notebook, and what is left out
    similar       notebooks that have more in common than chance explains
    questions     what a question is, and the cases of an edition
    course        course.toml: what a teacher decides
    assignment    the checks that a student calls in the notebook
    a1_minbert    the questions of assignment 1: the encoder and its training
    a2_multiverse the questions of assignment 2: many heads
    a3_mtdnn_san  the questions of assignment 3: one encoder for several tasks
    a4_pals       the questions of assignment 4: projected attention, sampling, prediction files
    runner        the process that runs a student's functions; it holds no answers
    sandbox       bubblewrap, or limits alone
    roster        the students of a course, and the files that they handed in
    grader        a folder of notebooks, graded by comparing raw values
    reports       points.csv, a page per student and their archive, Gradescope's results.json
    grades        grades.csv, the imports of Canvas and Moodle, report.csv
    bundle        the zip file that Gradescope takes
    leaderboard   a table of prediction files, with ties, dates and baseline rows

The notebooks of `assignments/` use `Assignment`, and `mmlkit grade` uses the rest. A table of
mistakes that a lesson has too does not belong here: it lives in `mmlcourse.lessons.checks`.
"""

from mmlcourse.grading.assignment import Assignment
