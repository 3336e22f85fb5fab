//! The expressions of GitHub Actions. What this does not know is an error, where GitHub would take an empty text.

use std::collections::BTreeMap;

use github_actions_expressions::call::Function;
use github_actions_expressions::{Evaluation, Expr, SpannedExpr};

use super::Result;

/// What expressions see.
#[derive(Default)]
pub(crate) struct Scope {
    /// By the whole name, such as `inputs.targets`.
    pub(crate) values: BTreeMap<String, String>,
    /// Whether a step has failed.
    pub(crate) failed: bool,
}

impl Scope {
    /// The text with the value of each expression in it.
    pub(crate) fn text(&self, text: &str) -> Result<String> {
        let (mut rest, mut out) = (text, String::new());
        while let Some((before, after)) = rest.split_once("${{") {
            let (expression, after) = after.split_once("}}").ok_or("an expression does not end")?;
            let (value, asks_status) = self.value(expression)?;
            if asks_status {
                return Err(format!("the status is known only in an if: {expression}").into());
            }
            (rest, out) = (after, out + before + &value.sema().to_string());
        }
        Ok(out + rest)
    }

    /// Whether a step with this `if` runs.
    pub(crate) fn condition(&self, text: Option<&str>) -> Result<bool> {
        let text = text.unwrap_or("success()").trim();
        let expression = text.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(text);
        // A text around an expression is always true.
        if expression.contains("${{") {
            return Err(format!("this if is more than one expression: {text}").into());
        }
        let (value, asks_status) = self.value(expression)?;
        Ok(value.as_boolean() && (asks_status || !self.failed))
    }

    /// The value of an expression, and whether it asks for the status of the steps before.
    fn value(&self, expression: &str) -> Result<(Evaluation, bool)> {
        let mut known = Vec::new();
        let parsed = Expr::parse(expression).map_err(|error| format!("{expression}: {error}"))?;
        let asks_status = self.literals(&parsed, &mut known)?;
        let mut constant = expression.to_owned();
        known.sort_by_key(|(span, _)| span.start);
        for (span, literal) in known.into_iter().rev() {
            constant.replace_range(span, &literal);
        }
        let value = Expr::parse(&constant).map_err(|error| format!("{constant}: {error}"))?.consteval();
        Ok((value.ok_or_else(|| format!("this has no value here: {expression}"))?, asks_status))
    }

    /// Adds a literal for each part of an expression that is no constant. Returns whether one is the status.
    fn literals(&self, part: &SpannedExpr<'_>, known: &mut Vec<(std::ops::Range<usize>, String)>) -> Result<bool> {
        let (span, raw) = (part.origin.span.as_range(), part.origin.raw);
        match &part.inner {
            Expr::Literal(_) => Ok(false),
            Expr::Context(_) => {
                let value = self.values.get(raw).ok_or_else(|| format!("unknown: {raw}"))?;
                known.push((span, format!("'{}'", value.replace('\'', "''"))));
                Ok(false)
            }
            Expr::Call(call) => {
                let status = match call.func {
                    Function::Always => true,
                    Function::Success => !self.failed,
                    Function::Failure => self.failed,
                    Function::Cancelled => false,
                    _ => return call.args.iter().try_fold(false, |any, one| Ok(self.literals(one, known)? || any)),
                };
                known.push((span, status.to_string()));
                Ok(true)
            }
            Expr::BinExpr(both) => Ok(self.literals(&both.lhs, known)? | self.literals(&both.rhs, known)?),
            Expr::UnExpr { expr, .. } => self.literals(expr, known),
            Expr::Star | Expr::Identifier(_) | Expr::Index(_) => Err(format!("unknown: {raw}").into()),
        }
    }
}

#[test]
fn an_expression_has_the_value_that_github_gives_it() -> Result<()> {
    let values = [("inputs.a", "it's"), ("inputs.none", ""), ("steps.one.outputs.n", "7")];
    let values: BTreeMap<_, _> = values.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let (well, failed) = (Scope { values: values.clone(), failed: false }, Scope { values, failed: true });
    // The text, and whether it holds before and after a step has failed.
    let conditions = [
        ("always() && inputs.a != ''", true, true),
        ("${{ always() && inputs.none != '' }}", false, false),
        ("inputs.a", true, false),
        ("!inputs.none", true, false),
        ("success() || inputs.a == 'IT''S'", true, true),
        ("failure() && (inputs.none || 'x')", false, true),
        ("cancelled()", false, false),
        ("steps.one.outputs.n > 6 && startsWith(format('{0}-{1}', inputs.a, 1), 'It')", true, false),
    ];
    for (text, before, after) in conditions {
        let found = (well.condition(Some(text))?, failed.condition(Some(text))?);
        assert_eq!(found, (before, after), "{text}");
    }
    assert_eq!((well.condition(None)?, failed.condition(None)?), (true, false));
    assert_eq!(well.text("a ${{ inputs.a }}, ${{ steps.one.outputs.n }}: ${{ 1 == 1 }}")?, "a it's, 7: true");
    for wrong in ["inputs.b", "inputs.*", "unknown()", "hashFiles('**')", "inputs.a &&", "github.token", "always()"] {
        assert!(well.text(&format!("${{{{ {wrong} }}}}")).is_err(), "{wrong}");
    }
    assert!(well.text("${{ inputs.a").is_err() && well.condition(Some("${{ true }} && ${{ false }}")).is_err());
    Ok(())
}
