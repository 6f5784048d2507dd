"""From documents without labelled queries to a verdict: which middle training, what it gains, how sure that is.

contenders                  what is asked for, and which systems take part
contest, contest_terms      rounds of trainings within a budget of time; its conditions and journal
traces                      what is read of artifacts; samples of a collection
assess, calibration         estimates for people's queries, a recommendation; what intervals come from
run, job                    from documents to the folder of a verdict; the same on a cluster, tracked
verdict, report, picture    the verdict as data, as Markdown and as a page, whose templates are in `templates/`
reveal                      what judgements say of a verdict that was reached without them
side_by_side, judgements    its systems asked by hand; a person's judgements of what they find
"""
